"""The run: one asyncio loop that turns everything that happens into an event of the machine.

Start reading at `run.py` (starts and ends everything, in order), then `controller.py` (events in,
effects out). Users' searchers, schedulers and stoppers run in separate threads.
"""
