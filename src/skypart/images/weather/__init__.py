"""Weather corruptions: ten conditions in two published profiles and on a severity axis. Deterministic on any worker."""

from skypart.images.weather.apply import WeatherTransform, corrupt
from skypart.images.weather.conditions import CONDITIONS, LABELS, PROFILES, RENDERING, check_condition, check_profile

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
