"""The run: one asyncio loop that turns everything that happens into an event of the machine.

Start reading at `run.py` (starts everything), then `controller.py` (events in, effects out) and
`services.py` (the processes around the loop, and how they end, in order or killed).
`run_cluster.py` is the run's side of a cluster and its nodes.
`proposer.py` makes trials. `user_code.py` asks users' searchers, schedulers and stoppers, which
run in the threads of `user_threads.py`.
"""
