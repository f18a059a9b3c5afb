"""The run: one asyncio loop in which everything that happens becomes an event of the machine.

Start reading at `run.py` (what is started and ended, in which order), then `controller.py` (events
in, effects out). Users' searchers, schedulers and stoppers run in threads of their own.
"""
