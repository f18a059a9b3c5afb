"""Makes the trials of an experiment: asks the search for a config, and makes a trial of it.

Start reading at `proposer.py`; `naming.py` gives a trial its name, folder and resources, and
`config_forms.py` has the two forms of a config, the user's and the journal's.
"""
