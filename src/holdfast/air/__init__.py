"""Trackers are in `holdfast.air.integrations`."""
