"""Trackers, with the names of `ray.air.integrations`."""
