"""Positions in the formats of others: GeoJSON, CSV, GPX, KML."""
