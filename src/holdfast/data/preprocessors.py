"""The public names of the preprocessors, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.data.preprocessing import Chain as Chain
    from holdfast.data.preprocessing import Concatenator as Concatenator
    from holdfast.data.preprocessing import LabelEncoder as LabelEncoder
    from holdfast.data.preprocessing import MinMaxScaler as MinMaxScaler
    from holdfast.data.preprocessing import OneHotEncoder as OneHotEncoder
    from holdfast.data.preprocessing import OrdinalEncoder as OrdinalEncoder
    from holdfast.data.preprocessing import Preprocessor as Preprocessor
    from holdfast.data.preprocessing import (
        PreprocessorNotFittedException as PreprocessorNotFittedException,
    )
    from holdfast.data.preprocessing import SimpleImputer as SimpleImputer
    from holdfast.data.preprocessing import StandardScaler as StandardScaler

__getattr__, __dir__, __all__ = lazy(__name__)
