"""Positions on the Earth: geodesy, metric frames, footprints and bounds. Imports only `errors` from the package."""
