"""Output formats for fixes and tracks: table, JSON, GeoJSON, CSV, KML, GPX. `formats` is the registry."""
