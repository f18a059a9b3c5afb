"""Users' objects as bytes: pickles, and placeholders for objects that must not be unpickled.

Start reading at `stored_objects.py`; `tuner_file.py` reads and writes tuner.pkl.
"""
