"""One loss per file, each on plain tensors, and GeoPartLoss (geopart.py), which groups them."""
