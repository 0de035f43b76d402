"""GeoJSON (RFC 7946): longitude first, rings anticlockwise, cut at the antimeridian."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from skypart.bridge.plain import fix_values, point_values
from skypart.bridge.shapes import circle, lines, place_of
from skypart.position.fix import Fix
from skypart.position.track_point import TrackPoint


def fixes_to_features(fixes: Sequence[Fix]) -> dict[str, Any]:
    """A feature collection: a point a photo (without geometry where there is no fix) and its 95 % circle."""
    features: list[dict[str, Any]] = []
    for fix in fixes:
        values = fix_values(fix)
        features.append(_feature("position", _point(values), values))
        features += _circle(values, {"photo": values["photo"]})
    return {"type": "FeatureCollection", "features": features}


def track_to_features(points: Sequence[TrackPoint], start: datetime | None = None) -> dict[str, Any]:
    """A feature collection: the path, then a point a photo (without geometry while lost) with its 95 % radius.

    The path is several lines where it was lost in between.
    """
    told = [point_values(point, start) for point in points]
    places = [place_of(each["latitude"], each["longitude"]) for each in told]
    parts = [[[place.longitude, place.latitude] for place in part] for part in lines(places)]
    path: dict[str, Any] | None = None
    if parts:
        path = {"type": "MultiLineString", "coordinates": parts}
        if len(parts) == 1:
            path = {"type": "LineString", "coordinates": parts[0]}
    features = [_feature("path", path, {})]
    features += [_feature("position", _point(each), each) for each in told]
    return {"type": "FeatureCollection", "features": features}


def to_text(content: dict[str, Any]) -> str:
    """The collection as text."""
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _feature(role: str, geometry: dict[str, Any] | None, values: dict[str, Any]) -> dict[str, Any]:
    properties = {key: value for key, value in values.items() if key not in ("latitude", "longitude")}
    return {"type": "Feature", "geometry": geometry, "properties": {"role": role, **properties}}


def _point(values: dict[str, Any]) -> dict[str, Any] | None:
    if values["latitude"] is None:
        return None
    return {"type": "Point", "coordinates": [values["longitude"], values["latitude"]]}


def _circle(values: dict[str, Any], properties: dict[str, Any]) -> list[dict[str, Any]]:
    """The circle around a position as a feature, none where there is no position or radius."""
    if values["latitude"] is None or values["radius_m"] is None:
        return []
    rings = circle(latitude=values["latitude"], longitude=values["longitude"], radius_m=values["radius_m"])
    parts = [[[[place.longitude, place.latitude] for place in ring]] for ring in rings]
    if not parts:
        return []
    geometry: dict[str, Any] = {"type": "Polygon", "coordinates": parts[0]}
    if len(parts) > 1:
        geometry = {"type": "MultiPolygon", "coordinates": parts}
    return [_feature("error circle, 95 %", geometry, {**properties, "radius_m": values["radius_m"]})]
