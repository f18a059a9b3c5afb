"""Runs on several machines, compared with one machine, with their engines and with Ray."""
