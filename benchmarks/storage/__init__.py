"""Checkpoints to disks and buckets, and back."""
