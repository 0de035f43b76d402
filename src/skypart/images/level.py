"""Deprecated: use `skypart.images.contrast`. Removed in the next release."""

import warnings

from skypart.images.contrast import CONTRAST_VERSION as LEVELLING
from skypart.images.contrast import stretch_contrast as level

__all__ = ["LEVELLING", "level"]

warnings.warn(
    "skypart.images.level is deprecated; use skypart.images.contrast.stretch_contrast",
    DeprecationWarning,
    stacklevel=2,
)
