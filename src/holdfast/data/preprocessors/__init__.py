"""Preprocessors: fitted to a dataset, block by block, and applied to datasets and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.data.preprocessors.base import Preprocessor as Preprocessor
    from holdfast.data.preprocessors.base import (
        PreprocessorNotFittedException as PreprocessorNotFittedException,
    )
    from holdfast.data.preprocessors.combining import BatchMapper as BatchMapper
    from holdfast.data.preprocessors.combining import Chain as Chain
    from holdfast.data.preprocessors.combining import Concatenator as Concatenator
    from holdfast.data.preprocessors.encoders import Categorizer as Categorizer
    from holdfast.data.preprocessors.encoders import LabelEncoder as LabelEncoder
    from holdfast.data.preprocessors.encoders import OneHotEncoder as OneHotEncoder
    from holdfast.data.preprocessors.encoders import OrdinalEncoder as OrdinalEncoder
    from holdfast.data.preprocessors.imputer import SimpleImputer as SimpleImputer
    from holdfast.data.preprocessors.scalers import MaxAbsScaler as MaxAbsScaler
    from holdfast.data.preprocessors.scalers import MinMaxScaler as MinMaxScaler
    from holdfast.data.preprocessors.scalers import Normalizer as Normalizer
    from holdfast.data.preprocessors.scalers import RobustScaler as RobustScaler
    from holdfast.data.preprocessors.scalers import StandardScaler as StandardScaler

__getattr__, __dir__, __all__ = lazy(__name__)
