"""From rasters and tiles to georeferenced views, and the index that holds their embeddings."""
