"""What makes scripts that were written for Ray, Optuna and others work, or say what to change."""
