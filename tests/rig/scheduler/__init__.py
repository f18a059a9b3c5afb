"""Events and trials of every kind, rehearsals that run to their end, and a person's orders."""
