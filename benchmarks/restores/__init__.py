"""Large experiments: restored, read and published."""
