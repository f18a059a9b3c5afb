"""Trials that run a command of any language: its words, its line protocol, its process."""
