"""holdfast and Ray next to each other on this machine: `scripts/compare-ray`."""
