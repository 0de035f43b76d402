"""Weather: ten conditions in two published profiles and on a severity axis, the same bytes on any worker."""

from skypart.images.weather.apply import corrupt
from skypart.images.weather.names import CONDITIONS, LABELS, PROFILES, RENDERING, check_condition, check_profile
from skypart.images.weather.transform import WeatherTransform

__all__ = [
    "CONDITIONS",
    "LABELS",
    "PROFILES",
    "RENDERING",
    "WeatherTransform",
    "check_condition",
    "check_profile",
    "corrupt",
]
