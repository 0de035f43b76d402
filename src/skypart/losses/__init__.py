"""One loss a file, each on plain tensors, and GeoPartLoss (geopart.py) that groups them."""
