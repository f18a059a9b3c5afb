"""`from holdfast import data`: datasets of Arrow tables and files, split among workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.data import preprocessors as preprocessors
    from holdfast.data.dataset import DataIterator as DataIterator
    from holdfast.data.dataset import Dataset as Dataset
    from holdfast.data.making import ActorPoolStrategy as ActorPoolStrategy
    from holdfast.data.making import DataContext as DataContext
    from holdfast.data.making import ExecutionResources as ExecutionResources
    from holdfast.data.making import TaskPoolStrategy as TaskPoolStrategy
    from holdfast.data.making import from_arrow as from_arrow
    from holdfast.data.making import from_huggingface as from_huggingface
    from holdfast.data.making import from_items as from_items
    from holdfast.data.making import from_numpy as from_numpy
    from holdfast.data.making import from_pandas as from_pandas
    from holdfast.data.making import from_torch as from_torch
    from holdfast.data.making import range as range  # noqa: A004 - as users know it
    from holdfast.data.making import read_binary_files as read_binary_files
    from holdfast.data.making import read_csv as read_csv
    from holdfast.data.making import read_images as read_images
    from holdfast.data.making import read_json as read_json
    from holdfast.data.making import read_parquet as read_parquet
    from holdfast.data.making import read_text as read_text
    from holdfast.data.preprocessors import Preprocessor as Preprocessor
    from holdfast.data.rows import DatasetGone as DatasetGone
    from holdfast.experiment.worker.train_loop import ExecutionOptions as ExecutionOptions

__getattr__, __dir__, __all__ = lazy(__name__)
