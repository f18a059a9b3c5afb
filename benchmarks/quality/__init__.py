"""How good the configurations of each algorithm are, and how soon, compared with its peers."""
