"""Plots of results, with matplotlib: `results.plot`, `result.plot`."""
