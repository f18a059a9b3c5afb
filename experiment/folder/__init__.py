"""An experiment's folder: the names of its files, and careful reading.

Start reading at `layout.py`. `settings.py` reads the environment variables of a run.
"""
