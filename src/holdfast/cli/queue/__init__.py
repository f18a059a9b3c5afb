"""`holdfast queue`: experiments that run one after another."""
