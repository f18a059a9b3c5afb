"""The live page of a large experiment: how soon it shows what, and what it costs the run."""
