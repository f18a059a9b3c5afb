"""The run: one asyncio loop that turns everything that happens into an event of the machine.

Start reading at `run.py` (starts everything, on the loop), then `controller.py` (events in,
effects out) and `services.py` (the processes around the loop, and how they end, in order or
killed). `watch.py` is the thread that called `fit()`, `output.py` what the loop shows it.
`run_cluster.py` is the run's side of a cluster and its nodes.
`proposer.py` makes trials. `user_code.py` asks users' searchers, schedulers and stoppers, which
run in the threads of `user_threads.py`.
"""
