"""Pixels in: decoding with limits, preprocessing, weather, EXIF. No model code."""
