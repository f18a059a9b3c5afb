"""The content of an experiment's page, as JSON values: read from its records, then followed.

It knows no HTTP: `holdfast.web` serves what this room returns, in the shapes of docs/page.md. It
reads as `holdfast show` does: without a lock, and nothing is written or unpickled. Start reading
at `place.py`, then `followed.py`.
"""
