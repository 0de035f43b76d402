"""Units of length in metres."""

US_SURVEY_FOOT = 1200 / 3937
"""Metres; used by US state plane coordinates."""
