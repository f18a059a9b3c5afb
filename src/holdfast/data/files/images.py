"""Images, decoded by Pillow."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from holdfast.data.columns import stacked
from holdfast.data.files.binary import BYTES
from holdfast.data.files.finding import PATH
from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A function of batches that replaces the files' bytes by arrays of pixels."""

    size: tuple[int, int] | None
    mode: str | None
    include_paths: bool

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        paths = batch[PATH]
        images = [self._pixels(data, path) for data, path in zip(batch[BYTES], paths, strict=True)]
        rest = {
            name: values
            for name, values in batch.items()
            if name != BYTES and (name != PATH or self.include_paths)
        }
        return {"image": stacked(images), **rest}

    def _pixels(self, data: bytes, path: str) -> Any:
        """Raises InvalidConfig, which names the file."""
        import numpy as np
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as found:
                image: Any = found
                if self.size is not None:
                    height, width = self.size
                    image = image.resize((width, height), resample=Image.Resampling.BILINEAR)
                if self.mode is not None:
                    image = image.convert(self.mode)
                return np.array(image)
        except (OSError, ValueError) as error:
            raise InvalidConfig(f"read_images() cannot decode {path}: {error}") from error
