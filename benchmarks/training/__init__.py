"""Trainings: batches, ranks and shared objects."""
