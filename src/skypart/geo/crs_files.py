"""Files that the definition of a coordinate system names: PROJ would open them, wherever they are."""

import re
from typing import Any

_PROJ = re.compile(r"(?i)(?:grids|init|catalog|file|model)\s*=\s*(?:\"([^\"]*)\"|([^\s\"\]]+))")
"""`+nadgrids=...` and its relatives, in PROJ strings and in WKT that quotes them."""
_WKT = re.compile(r"(?i)(?:PARAMETERFILE\s*[\[(]\s*\"[^\"]*\"|\"PROJ4_GRIDS\")\s*,\s*\"([^\"]*)\"")
_OWN = re.compile(r"[A-Za-z0-9][\w.-]*|(?:epsg|esri|ignf|iau|ogc|crs)(?::\w+)?:\w+", re.IGNORECASE)
"""A plain name, which PROJ looks for among its own files, or a code of an authority."""


def files_elsewhere(definition: str) -> list[str]:
    """Names of files outside PROJ's own folders in a PROJ string or WKT, as grids of shifts; at most ten."""
    found = []
    for text in (definition, *(definition.replace('""', quote) for quote in ("", "'"))):  # "" is a quote in a text
        found += [value for groups in _PROJ.findall(text) for value in groups if value]
        found += _WKT.findall(text)
    return _elsewhere(found)


def parameters_elsewhere(content: Any) -> list[str]:
    """The same of a PROJJSON document: the values of parameters that are texts are names of files."""
    found, waiting = [], [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            values = [each.get("value") for each in _dicts(node.get("parameters"))]
            found += [value for value in values if isinstance(value, str)]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return _elsewhere(found)


def _dicts(nodes: Any) -> list[dict[str, Any]]:
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _elsewhere(values: list[str]) -> list[str]:
    """Those of comma-separated names that are no plain names, at most ten."""
    names = dict.fromkeys(name.strip().lstrip("@") for value in values for name in value.split(","))
    return [name for name in names if name and not _OWN.fullmatch(name)][:10]
