"""`Tuner` and the trainers: what users construct.

They check what they are given and hand a request to `start`. Start reading at `tuner.py`.
"""
