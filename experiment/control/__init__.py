"""The run: one asyncio loop that turns everything that happens into an event of the machine.

Start reading at `run.py` (starts everything), then `controller.py` (events in, effects out) and
`ending.py` (ends everything, in order, or kills it). `run_cluster.py` is the run's side of a
cluster, `run_nodes.py` what happens to its nodes. `user_code.py` asks users' searchers, schedulers
and stoppers, which run in separate threads.
"""
