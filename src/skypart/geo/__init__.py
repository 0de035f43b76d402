"""Places on the Earth: geodesy, metric frames, footprints and bounds. Imports nothing of the package but errors."""
