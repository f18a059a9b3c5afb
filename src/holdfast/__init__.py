"""holdfast: training runs that are not lost."""

__version__ = "0.1.0"
