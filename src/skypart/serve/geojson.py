"""A fix as GeoJSON."""

import json
from typing import Any

from skypart.serve.answers import FixAnswer


def geojson(answer: FixAnswer) -> str:
    """A collection of the fix and the drone as points; without a fix it is empty. The rest are its properties."""
    fields = answer.model_dump(mode="json")
    features: list[dict[str, Any]] = []
    if answer.latitude is not None and answer.longitude is not None:
        features.append(_point(answer.latitude, answer.longitude, {"what": "image centre on the ground", **fields}))
    if answer.drone_latitude is not None and answer.drone_longitude is not None:
        properties = {"what": "drone", "photo": answer.photo}
        features.append(_point(answer.drone_latitude, answer.drone_longitude, properties))
    collection = {"type": "FeatureCollection", "features": features, "found": answer.found, "reason": answer.reason}
    return json.dumps(collection)


def _point(latitude: float, longitude: float, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [longitude, latitude]}
    return {"type": "Feature", "geometry": geometry, "properties": properties}
