"""Experiments looked at from outside: running or not, here or in storage, without their code."""
