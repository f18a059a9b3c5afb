"""Users' objects as bytes: pickles, and what takes their place where nothing may be unpickled.

Start reading at `stored_objects.py`; `tuner_file.py` is tuner.pkl.
"""
