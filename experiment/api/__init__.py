"""`Tuner` and the trainers: the classes that users construct.

They check their arguments and pass a request to `start`. Start reading at `tuner.py`.
"""
