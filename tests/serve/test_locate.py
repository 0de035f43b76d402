import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, read_rgb
from skypart.images.weather import CONDITIONS, corrupt
from skypart.position.fix import Fix, Hints, Prior
from skypart.serve.encoded_images import encode_jpeg
from skypart.serve.schemas import FixAnswer
from tests.serve.conftest import encoded
from tests.serve.fake_service import FakeService


def locate(client: TestClient, photo: bytes, name: str = "photo.jpg", **form: object) -> Any:
    return client.post("/v1/locate", files={"photo": (name, photo)}, data={k: str(v) for k, v in form.items()})


def test_a_photo_of_the_map_is_found_where_it_was_taken(client: TestClient, service: FakeService, photo: bytes) -> None:
    answer = locate(client, photo).json()
    latitude, longitude = service.degrees(300, 320)
    assert answer["found"] is True and answer["reason"] == ""
    assert answer["latitude"] == pytest.approx(latitude, abs=5e-5)
    assert answer["longitude"] == pytest.approx(longitude, abs=5e-5)
    assert len(answer["candidates"]) == 5
    scores = [candidate["score"] for candidate in answer["candidates"]]
    assert scores == sorted(scores, reverse=True)


def test_the_response_has_all_documented_fields_of_a_fix(client: TestClient, photo: bytes, grey: bytes) -> None:
    for image in (photo, grey):
        answer = locate(client, image).json()
        names = {field.name for field in fields(Fix)} - {"best_guess"}
        assert names | {"found", "hints"} == set(answer) == set(FixAnswer.model_fields)
        assert FixAnswer.model_validate(answer).model_dump(mode="json") == answer


def test_no_fix_is_not_an_http_error(client: TestClient, service: FakeService, grey: bytes) -> None:
    for image in (grey, encoded(service.elsewhere())):
        response = locate(client, image)
        assert response.status_code == 200
        assert response.json()["found"] is False
        assert response.json()["latitude"] is None
        assert response.json()["reason"]


def test_prior_and_hints_reach_the_service(client: TestClient, service: FakeService, photo: bytes) -> None:
    latitude, longitude = service.degrees(300, 320)
    locate(client, photo, latitude=latitude, longitude=longitude, radius_m=120, heading_deg=-90, altitude_m=80.5)
    locate(client, photo, latitude=latitude, longitude=longitude)
    locate(client, photo)
    (_, prior, hints), (_, wide, _), (_, nowhere, nothing) = service.calls
    assert prior == Prior(latitude=latitude, longitude=longitude, radius_m=120.0)
    assert hints == Hints(heading_deg=270.0, altitude_m=80.5)
    assert wide is not None and wide.radius_m == 500.0
    assert nowhere is None and nothing is None


def test_a_prior_outside_the_map_gives_no_fix(client: TestClient, photo: bytes) -> None:
    answer = locate(client, photo, latitude=-33.9, longitude=151.2, radius_m=1000).json()
    assert answer["found"] is False and "radius" in answer["reason"]


def test_the_drone_position_needs_tilt_and_altitude(client: TestClient, photo: bytes) -> None:
    answer = locate(client, photo, altitude_m=100, tilt_deg=45).json()
    assert answer["drone_latitude"] < answer["latitude"]
    assert locate(client, photo).json()["drone_latitude"] is None


def photo_with_exif(image: RgbImage) -> bytes:
    """A photo whose EXIF has a 24 mm lens (35 mm equivalent)."""
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 24
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", exif=exif)
    return out.getvalue()


def test_hints_come_from_exif_unless_the_form_has_them(client: TestClient, service: FakeService) -> None:
    photo = photo_with_exif(service.photo(300, 320))
    answer = locate(client, photo).json()
    own = service.calls[-1][2]
    assert own is not None and own.fov_deg is not None
    assert answer["hints"]["fov_deg"] == pytest.approx(own.fov_deg)
    locate(client, photo, fov_deg=40)
    assert service.calls[-1][2] == Hints(fov_deg=40.0)
    assert locate(client, photo, exif="false").json()["hints"]["fov_deg"] is None
    assert service.calls[-1][2] is None


def test_geojson_has_longitude_first(client: TestClient, photo: bytes, grey: bytes) -> None:
    answer = locate(client, photo).json()
    response = locate(client, photo, format="geojson")
    assert response.headers["content-type"].startswith("application/geo+json")
    place, circle = response.json()["features"]
    assert place["geometry"]["coordinates"] == pytest.approx([answer["longitude"], answer["latitude"]])
    assert place["properties"]["radius_m"] == circle["properties"]["radius_m"] == pytest.approx(answer["radius_m"])
    assert circle["geometry"]["type"] == "Polygon"
    (nowhere,) = locate(client, grey, format="geojson").json()["features"]
    assert nowhere["geometry"] is None and "one colour" in nowhere["properties"]["reason"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_weather_is_applied_to_the_photo(client: TestClient, service: FakeService, condition: str) -> None:
    clear = encoded(service.photo(300, 320))
    seen = client.post("/v1/weather", files={"photo": ("a.png", clear)}, data={"weather": condition})
    assert seen.status_code == 200 and seen.headers["content-type"] == "image/jpeg"
    key = hashlib.sha256(clear).hexdigest()
    assert seen.content == encode_jpeg(corrupt(service.photo(300, 320), condition, "paper", 0, key))
    again = client.post("/v1/weather", files={"photo": ("b.png", clear)}, data={"weather": condition})
    assert again.content == seen.content


def test_weather_can_make_a_photo_fail(client: TestClient, photo: bytes) -> None:
    assert locate(client, photo, weather="dark").json()["found"] is True
    assert locate(client, photo, weather="dark", profile="weatherprompt").json()["found"] is False
    scores = {
        seed: locate(client, photo, weather="rain", profile="weatherprompt", seed=seed).json()["candidates"][0]["score"]
        for seed in (1, 2)
    }
    assert scores[1] != scores[2]


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"latitude": "91", "longitude": "0"}, "latitude"),
        ({"latitude": "45"}, "longitude"),
        ({"radius_m": "10"}, "radius_m"),
        ({"latitude": "nan", "longitude": "0"}, "latitude"),
        ({"longitude": "east", "latitude": "1"}, "longitude"),
        ({"altitude_m": "-3"}, "altitude_m"),
        ({"tilt_deg": "120"}, "tilt_deg"),
        ({"weather": "hail"}, "weather"),
        ({"weather": "fogg"}, "did you mean 'fog'"),
        ({"profile": "mine"}, "profile"),
        ({"format": "xml"}, "format"),
        ({"lattitude": "1"}, "lattitude"),
    ],
)
def test_a_wrong_field_is_named(client: TestClient, photo: bytes, form: dict[str, str], word: str) -> None:
    response = locate(client, photo, **form)
    assert response.status_code == 422
    assert word in response.json()["detail"]
    assert set(response.json()) == {"detail"}


def test_empty_fields_are_ignored(client: TestClient, photo: bytes) -> None:
    assert locate(client, photo, latitude="", longitude=" ", weather="").status_code == 200


def test_parts_are_a_png(client: TestClient, photo: bytes) -> None:
    response = client.post("/v1/parts", files={"photo": ("a.jpg", photo)})
    assert response.status_code == 200 and response.headers["content-type"] == "image/png"
    assert read_rgb(io.BytesIO(response.content)).shape == (512, 512, 3)


class NonFinite(FakeService):
    """Returns values that JSON cannot represent."""

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        found = super().locate(image, name, prior, hints)
        assert found.evidence is not None
        return replace(found, radius_m=float("inf"), evidence=replace(found.evidence, evenness=float("nan")))


def test_infinities_do_not_break_json(
    open_client: Callable[..., TestClient], service: FakeService, photo: bytes
) -> None:
    answer = json.loads(locate(open_client(NonFinite(service.town)), photo).text)
    assert answer["radius_m"] is None and answer["evidence"]["evenness"] is None


class Broken(FakeService):
    """Fails in two ways."""

    def locate(self, image: RgbImage, name: str, prior: Prior | None, hints: Hints | None) -> Fix:
        if name == "fixable.jpg":
            raise SkyPartError("town.skyindex: was made with another model; index it again")
        raise RuntimeError("secret path /home/someone")


def test_failures_reveal_no_secrets(open_client: Callable[..., TestClient], service: FakeService, photo: bytes) -> None:
    client = open_client(Broken(service.town))
    fixable = locate(client, photo, "fixable.jpg")
    assert fixable.status_code == 422 and "index it again" in fixable.json()["detail"]
    failed = locate(client, photo)
    assert failed.status_code == 500
    assert "secret" not in failed.text and failed.json()["detail"]
    assert failed.headers["x-content-type-options"] == "nosniff"
    assert client.get("/healthz").json() == {"status": "ok"}
