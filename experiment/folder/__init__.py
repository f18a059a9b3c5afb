"""An experiment's folder: the name of each file (`layout.py`), and how it is read with care.

Start reading at `layout.py`. `settings.py` reads the environment variables, all in one place.
"""
