"""GeoJSON (RFC 7946): longitude first, rings anticlockwise, split at the antimeridian."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from skypart.bridge.geometry import circle_rings, place_or_none, split_path
from skypart.bridge.output_format import OutputFormat
from skypart.bridge.values import fix_values, point_values
from skypart.position.fix import Fix, Place
from skypart.position.track import TrackPoint


def fixes_to_features(fixes: Sequence[Fix]) -> dict[str, Any]:
    """A feature collection: one point per photo (without geometry if there is no fix) and its 95 % circle."""
    features: list[dict[str, Any]] = []
    for fix in fixes:
        values = fix_values(fix)
        features.append(_feature("position", _point(values), values))
        features += _circle(values, {"photo": values["photo"]})
    return {"type": "FeatureCollection", "features": features}


def track_to_features(points: Sequence[TrackPoint], start: datetime | None = None) -> dict[str, Any]:
    """A feature collection: the path, then one point per photo (without geometry while lost) with its 95 % radius.

    The path consists of several lines if it was lost in between.
    """
    rows = [point_values(point, start) for point in points]
    places = [place_or_none(row["latitude"], row["longitude"]) for row in rows]
    parts = [[[place.longitude, place.latitude] for place in line] for line in split_path(places)]
    path: dict[str, Any] | None = None
    if parts:
        path = {"type": "MultiLineString", "coordinates": parts}
        if len(parts) == 1:
            path = {"type": "LineString", "coordinates": parts[0]}
    features = [_feature("path", path, {})]
    features += [_feature("position", _point(row), row) for row in rows]
    return {"type": "FeatureCollection", "features": features}


def to_text(content: dict[str, Any]) -> str:
    """A feature collection as text."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _feature(role: str, geometry: dict[str, Any] | None, values: dict[str, Any]) -> dict[str, Any]:
    properties = {key: value for key, value in values.items() if key not in ("latitude", "longitude")}
    return {"type": "Feature", "geometry": geometry, "properties": {"role": role, **properties}}


def _point(values: dict[str, Any]) -> dict[str, Any] | None:
    if values["latitude"] is None:
        return None
    return {"type": "Point", "coordinates": [values["longitude"], values["latitude"]]}


def _circle(values: dict[str, Any], properties: dict[str, Any]) -> list[dict[str, Any]]:
    """The circle around a position as a feature; empty if there is no position or radius."""
    if values["latitude"] is None or values["radius_m"] is None:
        return []
    rings = circle_rings(Place(values["latitude"], values["longitude"]), values["radius_m"])
    parts = [[[[place.longitude, place.latitude] for place in ring]] for ring in rings]
    if not parts:
        return []
    geometry: dict[str, Any] = {"type": "Polygon", "coordinates": parts[0]}
    if len(parts) > 1:
        geometry = {"type": "MultiPolygon", "coordinates": parts}
    return [_feature("error circle, 95 %", geometry, {**properties, "radius_m": values["radius_m"]})]


FORMAT = OutputFormat(
    name="geojson",
    fixes=lambda fixes: to_text(fixes_to_features(fixes)),
    track=lambda points, start: to_text(track_to_features(points, start)),
    other_suffixes=("json",),
)
