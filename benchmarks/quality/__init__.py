"""How good the configurations are that each algorithm finds, and how soon, beside its peers."""
