"""Files that the definition of a coordinate system names: PROJ would open them, wherever they are."""

import re

_PROJ = re.compile(r"(?i)(?:grids|init|catalog|file|model)\s*=\s*(?:\"([^\"]*)\"|([^\s\"\]]+))")
"""`+nadgrids=...` and its relatives, in PROJ strings and in WKT that quotes them."""
_WKT = re.compile(r"(?i)(?:PARAMETERFILE\s*[\[(]\s*\"[^\"]*\"|\"PROJ4_GRIDS\")\s*,\s*\"([^\"]*)\"")
_OWN = re.compile(r"[A-Za-z0-9][\w.-]*|(?:epsg|esri|ignf|iau|ogc|crs)(?::\w+)?:\w+", re.IGNORECASE)
"""A plain name, which PROJ looks for among its own files, or a code of an authority."""


def files_elsewhere(definition: str) -> list[str]:
    """Names of files outside PROJ's own folders in a PROJ string or WKT, as grids of shifts; at most ten."""
    found = [value for groups in _PROJ.findall(definition) for value in groups if value]
    found += _WKT.findall(definition)
    names = [name.strip().lstrip("@") for value in found for name in value.split(",")]
    return [name for name in names if name and not _OWN.fullmatch(name)][:10]
