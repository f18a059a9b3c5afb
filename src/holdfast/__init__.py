"""holdfast: training runs that are not lost."""

from holdfast.experiment.cluster import init, is_initialized, shutdown

__version__ = "0.1.0"

__all__ = ["__version__", "init", "is_initialized", "shutdown"]
