"""`holdfast doctor`: the health of an experiment and of this machine."""
