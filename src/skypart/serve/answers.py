"""The answers of the API, documented field by field."""

from typing import Self

from pydantic import BaseModel, Field

from skypart.serve.service import Example


class FootprintAnswer(BaseModel):
    """A square of ground."""

    latitude: float = Field(description="Of its centre, WGS 84 degrees.")
    longitude: float = Field(description="Of its centre, WGS 84 degrees.")
    metres: float = Field(description="Its edge on the ground.")
    rotation: float = Field(description="Compass degrees of the direction that is up in the view; 0 is north.")


class CandidateAnswer(BaseModel):
    """A view of the map that resembles the photo."""

    footprint: FootprintAnswer
    score: float = Field(description="Cosine similarity to the photo, -1 to 1.")
    map_name: str = Field(description="The map it is of.")


class PeakAnswer(BaseModel):
    """A place that the best views agree on."""

    latitude: float
    longitude: float
    weight: float = Field(description="Its share of all votes, 0 to 1.")
    spread_m: float = Field(description="Standard deviation in metres.")


class HintsAnswer(BaseModel):
    """What was known of the camera, from the form or else from the photo's own EXIF and XMP; null where it was not."""

    heading_deg: float | None = None
    turn_deg: float | None = None
    altitude_m: float | None = None
    tilt_deg: float | None = None
    fov_deg: float | None = None


class FixAnswer(BaseModel):
    """Where a photo was taken, or why that is not known: what `skypart locate` writes, and the hints used."""

    photo: str = Field(description="The name the photo was sent under.")
    found: bool = Field(description="Whether there is a fix.")
    latitude: float | None = Field(description="Of the ground at the centre of the image; null without a fix.")
    longitude: float | None = Field(description="Of the ground at the centre of the image; null without a fix.")
    radius_m: float | None = Field(description="The true position lies within it with 95 % probability.")
    map_error_m: float = Field(description="What of the radius is the map's own error, common to all its photos.")
    confidence: float = Field(description="Probability, 0 to 1, that the true position lies within 50 m.")
    reason: str = Field(description="Why there is no fix; empty with one.")
    refined: bool = Field(description="Whether patches of photo and map were matched.")
    calibrated: bool = Field(description="False where radius and confidence are the default, not fitted to this map.")
    heading_deg: float | None = Field(description="Compass direction that is up in the photo, if refined.")
    ground_m: float | None = Field(description="Metres of ground across the photo, if refined.")
    drone_latitude: float | None = Field(description="Of the camera, where tilt and lens or altitude are known.")
    drone_longitude: float | None = Field(description="Of the camera, where tilt and lens or altitude are known.")
    candidates: list[CandidateAnswer] = Field(description="The best views of the map, best first.")
    peaks: list[PeakAnswer] = Field(description="Places they agree on, best first.")
    seconds: float = Field(description="Time taken.")
    evidence: dict[str, float | None] = Field(description="What the confidence was computed from.")
    hints: HintsAnswer


class BoundsAnswer(BaseModel):
    """A box in WGS 84 degrees; west is greater than east where it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float


class LimitsAnswer(BaseModel):
    """What the server takes."""

    max_bytes: int = Field(description="Of a request.")
    max_pixels: int = Field(description="Of a photo.")
    upload_seconds: float = Field(description="For sending a request.")
    formats: list[str] = Field(description="Media types of photos.")


class WeatherAnswer(BaseModel):
    """A weather that can be put on photos."""

    name: str
    title: str


class IndexAnswer(BaseModel):
    """The index that is served."""

    name: str
    maps: list[str] = Field(description="Names of the maps in the index.")
    views: int = Field(description="Number of map views a photo is compared with.")
    model: str = Field(description="Hash of the model that embedded them.")
    bounds: BoundsAnswer
    attribution: str = Field(description="Whom the map is from.")
    calibrated: bool = Field(description="Whether confidence and radius were fitted on labelled photos.")
    gsd_m: float | None = Field(None, description="Metres of ground a pixel of the finest map.")
    version: str = Field(description="Of what is served; tiles asked for with ?v=version may be kept for ever.")
    weathers: list[WeatherAnswer]
    profiles: list[str] = Field(description="Published weather parameters to choose from.")
    limits: LimitsAnswer


class ExampleAnswer(BaseModel):
    """A photo to try."""

    name: str
    title: str
    url: str = Field(description="Where the photo is; ?size=240 gives a small one.")
    latitude: float | None = Field(description="Where the centre of the image truly lies, where known.")
    longitude: float | None = Field(description="Where the centre of the image truly lies, where known.")

    @classmethod
    def of(cls, example: Example) -> Self:
        """The answer for one example."""
        return cls(
            name=example.name,
            title=example.title,
            url=f"/v1/examples/{example.name}.jpg",
            latitude=example.latitude,
            longitude=example.longitude,
        )


class HealthAnswer(BaseModel):
    """A sign of life."""

    status: str = Field(description="ok")
