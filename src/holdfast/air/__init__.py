"""What surrounds a run: `holdfast.air.integrations` has the trackers."""
