"""The fields of a request beside its photo, checked and documented."""

from collections.abc import Callable
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from skypart.errors import SkyPartError
from skypart.images.weather import CONDITIONS, PROFILES, check_condition, check_profile
from skypart.position.fix import Hints, Prior
from skypart.serve.problems import RefusedError, sentence

DEFAULT_RADIUS_M = 500.0


class PhotoForm(BaseModel):
    """What may be done to a photo before it is looked at."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    weather: str = Field(
        "normal", description="Weather put on the photo first.", json_schema_extra={"enum": list(CONDITIONS)}
    )
    profile: str = Field(
        "paper", description="Which published weather parameters.", json_schema_extra={"enum": list(PROFILES)}
    )
    seed: int = Field(0, ge=0, le=2**31, description="Another seed gives other drops and flakes.")

    @field_validator("weather")
    @classmethod
    def _known_weather(cls, value: str) -> str:
        _told(check_condition, value)
        return value

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        _told(check_profile, value)
        return value


class LocateForm(PhotoForm):
    """What is known about a photo, all optional."""

    latitude: float | None = Field(None, ge=-90, le=90, description="Of a place it is near, WGS 84 degrees.")
    longitude: float | None = Field(None, ge=-180, le=180, description="Of a place it is near, WGS 84 degrees.")
    radius_m: float | None = Field(
        None, gt=0, le=2e7, description=f"How near, in metres; {DEFAULT_RADIUS_M:g} with latitude and longitude alone."
    )
    heading_deg: float | None = Field(None, ge=-360, le=360, description="Compass direction that is up in the photo.")
    altitude_m: float | None = Field(None, gt=0, le=20_000, description="Above the ground, metres.")
    tilt_deg: float | None = Field(None, gt=0, le=90, description="Of the camera below the horizon; 90 is down.")
    fov_deg: float | None = Field(None, gt=0, lt=180, description="Field of view across the photo's width.")
    exif: bool = Field(True, description="Take heading, altitude, tilt and field of view from the photo itself too.")
    format: Literal["json", "geojson"] = Field("json", description="Form of the answer.")

    @model_validator(mode="after")
    def _whole_prior(self) -> Self:
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError("latitude and longitude go together; send both or neither")
        if self.radius_m is not None and self.latitude is None:
            raise ValueError("radius_m needs latitude and longitude")
        return self

    def prior(self) -> Prior | None:
        """Where the photo is thought to be, if that was said."""
        if self.latitude is None or self.longitude is None:
            return None
        return Prior(latitude=self.latitude, longitude=self.longitude, radius_m=self.radius_m or DEFAULT_RADIUS_M)

    def hints(self) -> Hints:
        """What was said of the camera."""
        return Hints(
            heading_deg=None if self.heading_deg is None else self.heading_deg % 360.0,
            altitude_m=self.altitude_m,
            tilt_deg=self.tilt_deg,
            fov_deg=self.fov_deg,
        )


Form = TypeVar("Form", bound=PhotoForm)


def read_form(form: type[Form], fields: dict[str, str]) -> Form:
    """Check the fields of a request; what is wrong with them is refused in one sentence."""
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(422, sentence(error)) from None


def request_body(form: type[PhotoForm]) -> dict[str, Any]:
    """The OpenAPI description of a multipart request: the photo and the fields of `form`."""
    schema = form.model_json_schema()
    photo = {"type": "string", "format": "binary", "description": "A JPEG, PNG, WebP or TIFF file."}
    schema["properties"] = {"photo": photo, **schema["properties"]}
    schema["required"] = ["photo"]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _told(check: Callable[[str], None], value: str) -> None:
    """Run a check of the weather; pydantic wants its complaint as ValueError."""
    try:
        check(value)
    except SkyPartError as error:
        raise ValueError(str(error)) from None
