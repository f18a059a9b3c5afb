"""The run: one asyncio loop that turns everything that happens into an event of the machine.

Start reading at `run.py` (starts everything), then `controller.py` (events in, effects out) and
`ending.py` (ends everything, in order, or kills it). Users' searchers, schedulers and stoppers run
in separate threads.
"""
