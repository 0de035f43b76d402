"""The names of the readers that are fuzzed. Nothing of the package is imported here, so that it can be instrumented."""

NAMES = [
    *("jpeg", "png", "tiff", "webp", "other-images", "exif", "xmp", "geotiff"),
    *("mbtiles", "pmtiles", "table", "tile-metadata", "world-file", "prj", "aux-xml", "index-json"),
    *("store-manifest", "model", "contract", "recipe", "plan", "truth-csv", "labelled", "form"),
    *("srt", "telemetry-csv", "tlog", "world-geotiff", "world-index", "world-meta", "heights"),
]
