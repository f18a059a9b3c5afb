"""Lets scripts that were written for Ray, Optuna and others work, or says what to change."""
