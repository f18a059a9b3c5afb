"""The package that `import ray` finds where `compat.ray_path.FOLDER` is on the import path."""

import sys

from holdfast.ray_names.names import take_over

sys.modules[__name__] = take_over()
