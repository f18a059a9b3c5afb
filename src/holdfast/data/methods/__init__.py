"""The methods of a dataset: `whole.py` has what they share, and `changing.py` most of them."""
