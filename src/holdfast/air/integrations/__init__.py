"""Trackers, by the names of `ray.air.integrations`."""
