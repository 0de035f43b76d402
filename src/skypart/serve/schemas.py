"""The JSON responses of the API, documented field by field."""

from typing import Self

from pydantic import BaseModel, Field

from skypart.serve.service import Example


class FootprintAnswer(BaseModel):
    """A square on the ground."""

    latitude: float = Field(description="Latitude of its centre, WGS 84 degrees.")
    longitude: float = Field(description="Longitude of its centre, WGS 84 degrees.")
    metres: float = Field(description="Edge length, metres.")
    rotation: float = Field(description="Compass direction of the view's upper edge, degrees; 0 is north.")


class CandidateAnswer(BaseModel):
    """A map view that resembles the photo."""

    footprint: FootprintAnswer
    score: float = Field(description="Cosine similarity to the photo, -1 to 1.")
    map_name: str = Field(description="Name of its map.")


class PeakAnswer(BaseModel):
    """A position that the best views agree on."""

    latitude: float
    longitude: float
    weight: float = Field(description="Its share of all votes, 0 to 1.")
    spread_m: float = Field(description="Standard deviation in metres.")


class HintsAnswer(BaseModel):
    """What was known about the camera, from the form or else from the photo's EXIF and XMP; null if unknown."""

    heading_deg: float | None = None
    turn_deg: float | None = None
    altitude_m: float | None = None
    tilt_deg: float | None = None
    fov_deg: float | None = None


class ErrorPartsAnswer(BaseModel):
    """The parts of a 95 % radius in metres."""

    map_m: float = Field(description="The map's own error, shared by all photos.")
    terrain_m: float = Field(description="Heights that the map does not know, seen obliquely.")
    camera_m: float = Field(description="Tilt, roll and lens of the camera.")
    matching_m: float = Field(description="The match with the map, or the vote of its views.")


class FixAnswer(BaseModel):
    """Where a photo was taken, or why there is no fix: the JSON of `skypart locate`, plus the hints used."""

    photo: str = Field(description="File name of the upload.")
    found: bool = Field(description="Whether there is a fix.")
    latitude: float | None = Field(description="Latitude of the ground at the image centre; null without a fix.")
    longitude: float | None = Field(description="Longitude of the ground at the image centre; null without a fix.")
    radius_m: float | None = Field(description="The true position is within this radius with 95 % probability.")
    map_error_m: float = Field(description="Part of the radius due to the map's own error, shared by all photos.")
    error_parts: ErrorPartsAnswer | None = Field(
        default=None, description="Parts of the radius; they add like the legs of a right triangle. Null without a fix."
    )
    confidence: float = Field(description="Probability, 0 to 1, that the true position is within 50 m.")
    reason: str = Field(description="Why there is no fix; empty if there is one.")
    refined: bool = Field(description="Whether the photo was matched with the map, not only compared with its views.")
    calibrated: bool = Field(description="False if radius and confidence use the default calibration.")
    heading_deg: float | None = Field(description="Compass direction of the photo's upper edge, if refined.")
    ground_m: float | None = Field(description="Metres of ground across the photo, if refined.")
    ground: list[float] | None = Field(
        default=None,
        description="Homography, row by row, from the photo's unit square to metres east and north of the position.",
    )
    drone_latitude: float | None = Field(description="Camera latitude, if tilt and lens or altitude are known.")
    drone_longitude: float | None = Field(description="Camera longitude, if tilt and lens or altitude are known.")
    candidates: list[CandidateAnswer] = Field(description="The best map views, best first.")
    peaks: list[PeakAnswer] = Field(description="Positions they agree on, best first.")
    seconds: float = Field(description="Processing time.")
    evidence: dict[str, float | None] = Field(description="Inputs of the confidence.")
    hints: HintsAnswer


class BoundsAnswer(BaseModel):
    """A box in WGS 84 degrees; west is greater than east if it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float


class LimitsAnswer(BaseModel):
    """Limits of the server."""

    max_bytes: int = Field(description="Largest request body.")
    max_pixels: int = Field(description="Largest photo.")
    upload_seconds: float = Field(description="Time allowed to send a request.")
    formats: list[str] = Field(description="Accepted media types.")


class WeatherAnswer(BaseModel):
    """A weather condition that can be applied to photos."""

    name: str
    title: str


class IndexAnswer(BaseModel):
    """The served index."""

    name: str
    maps: list[str] = Field(description="Names of its maps.")
    views: int = Field(description="Number of map views that a photo is compared with.")
    model: str = Field(description="Digest of the model that embedded them.")
    bounds: BoundsAnswer
    attribution: str = Field(description="Attribution of the map.")
    calibrated: bool = Field(description="Whether confidence and radius were fitted on labelled photos.")
    gsd_m: float | None = Field(None, description="Ground sampling distance of the finest map, metres per pixel.")
    version: str = Field(description="Changes with the content; tiles requested with ?v=version can be cached forever.")
    weathers: list[WeatherAnswer]
    profiles: list[str] = Field(description="Published sets of weather parameters.")
    limits: LimitsAnswer


class ExampleAnswer(BaseModel):
    """An example photo."""

    name: str
    title: str
    url: str = Field(description="URL of the photo; append ?size=240 for a thumbnail.")
    latitude: float | None = Field(description="True latitude of the image centre, if known.")
    longitude: float | None = Field(description="True longitude of the image centre, if known.")

    @classmethod
    def from_example(cls, example: Example) -> Self:
        """The response entry of one example."""
        return cls(
            name=example.name,
            title=example.title,
            url=f"/v1/examples/{example.name}.jpg",
            latitude=example.latitude,
            longitude=example.longitude,
        )


class HealthAnswer(BaseModel):
    """Health check."""

    status: str = Field(description="ok")
