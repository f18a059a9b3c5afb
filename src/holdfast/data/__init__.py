"""`from holdfast import data`: datasets of Arrow tables and files, split among workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.data.dataset import Dataset as Dataset
    from holdfast.data.errors import DatasetGone as DatasetGone
    from holdfast.data.iterator import DataIterator as DataIterator
    from holdfast.data.making import from_arrow as from_arrow
    from holdfast.data.making import from_items as from_items
    from holdfast.data.making import from_numpy as from_numpy
    from holdfast.data.making import from_pandas as from_pandas
    from holdfast.data.making import range as range  # noqa: A004 - as users know it
    from holdfast.data.making import read_parquet as read_parquet

__getattr__, __dir__, __all__ = lazy(__name__)
