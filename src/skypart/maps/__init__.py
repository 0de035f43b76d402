"""From rasters and tiles to georeferenced views, and the index that stores their embeddings."""
