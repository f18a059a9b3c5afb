"""The version of holdfast."""

VERSION = "0.1.0"
