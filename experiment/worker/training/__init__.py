"""What the loop of a trainer can ask for besides reports: Train V2's functions."""
