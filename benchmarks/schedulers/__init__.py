"""Searches and schedulers: how long a decision takes, and whether it is Ray's."""
