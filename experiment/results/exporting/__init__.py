"""Results as tables of other libraries, as files, and in an Optuna storage."""
