import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from skypart.images.decode import read_rgb
from skypart.serve.encoded_images import TileCache, is_tile, with_etag
from tests.serve.fake_service import LATITUDE, LONGITUDE, FakeService

Z = 17
X = math.floor((LONGITUDE + 180) / 360 * 2**Z) + 1
Y = math.floor((1 - math.asinh(math.tan(math.radians(LATITUDE))) / math.pi) / 2 * 2**Z) + 1


def test_the_index_is_described(client: TestClient, service: FakeService) -> None:
    answer = client.get("/v1/index").json()
    info = service.info()
    for key, value in info.items():
        assert answer[key] == value
    assert len(answer["weathers"]) == 10 and answer["profiles"] == ["paper", "weatherprompt"]
    assert answer["limits"]["max_bytes"] == 32 * 1024 * 1024


def test_a_tile_shows_the_map(client: TestClient, service: FakeService) -> None:
    response = client.get(f"/tiles/{Z}/{X}/{Y}.png")
    assert response.status_code == 200 and response.headers["content-type"] == "image/png"
    tile = np.asarray(Image.open(io.BytesIO(response.content)))
    drawn = service.tile(Z, X, Y)
    assert drawn is not None and np.array_equal(tile, drawn)


def test_tiles_have_caching_headers(client: TestClient) -> None:
    version = client.get("/v1/index").json()["version"]
    path = f"/tiles/{Z}/{X}/{Y}.png"
    assert client.get(path).headers["cache-control"] == "public, max-age=60"
    assert client.get(f"{path}?v=old").headers["cache-control"] == "public, max-age=60"
    first = client.get(f"{path}?v={version}")
    assert first.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_with_a_key_responses_are_private(service: FakeService, open_client: Callable[..., TestClient]) -> None:
    response = open_client(service, api_key="k").get(f"/tiles/{Z}/{X}/{Y}.png", headers={"x-api-key": "k"})
    assert response.headers["cache-control"].startswith("private")


def test_an_empty_tile_has_no_content(client: TestClient) -> None:
    response = client.get(f"/tiles/{Z}/5/5.png")
    assert response.status_code == 204 and not response.content


@pytest.mark.parametrize("tile", ["3/8/0", "3/0/8", "3/-1/0", "25/0/0", "-1/0/0", "a/0/0"])
def test_tiles_that_do_not_exist_are_refused(client: TestClient, tile: str) -> None:
    response = client.get(f"/tiles/{tile}.png")
    assert response.status_code in (404, 422) and response.json()["detail"]


def test_is_tile() -> None:
    assert is_tile(0, 0, 0) and is_tile(24, 2**24 - 1, 0)
    assert not is_tile(0, 1, 0) and not is_tile(25, 0, 0)


class Counting(FakeService):
    """Counts the tiles it draws."""

    drawn = 0

    def tile(self, z: int, x: int, y: int) -> NDArray[np.uint8] | None:
        self.drawn += 1
        return super().tile(z, x, y)


def test_a_tile_is_drawn_once(service: FakeService, open_client: Callable[..., TestClient]) -> None:
    counting = Counting(service.town)
    client = open_client(counting)
    answers = {client.get(f"/tiles/{Z}/{X}/{Y}.png").content for _ in range(3)}
    assert len(answers) == 1 and counting.drawn == 1


def test_the_cache_stays_within_its_limit() -> None:
    cache = TileCache(max_bytes=10_000)
    for x in range(50):
        cache.put((6, x, 0), with_etag(bytes([x]) * 1000))
        cache.put((6, x, 0), with_etag(bytes([x]) * 1000))
        assert cache.get((6, 0, 0)) is not None  # used all the time, so it stays
        assert cache.bytes <= 10_000
    assert cache.get((6, 10, 0)) is None
    assert cache.get((6, 49, 0)) == with_etag(bytes([49]) * 1000)


def test_a_view_shows_the_map_under_a_footprint(client: TestClient, service: FakeService) -> None:
    latitude, longitude = service.degrees(300, 320)
    place = {"latitude": latitude, "longitude": longitude, "metres": 160}
    response = client.get("/v1/view", params={**place, "size": 160})
    assert response.headers["content-type"] == "image/jpeg"
    shown = read_rgb(io.BytesIO(response.content)).astype(int)
    expected = service.town[240:400, 220:380].astype(int)
    assert shown.shape == (160, 160, 3)
    assert np.abs(shown - expected).mean() < 8
    turned = read_rgb(io.BytesIO(client.get("/v1/view", params={**place, "rotation": 90, "size": 160}).content))
    assert np.abs(np.rot90(expected, 1) - turned).mean() < 8


@pytest.mark.parametrize(
    "wrong", [{"latitude": 95}, {"metres": 0}, {"size": 100_000}, {"longitude": "nan"}, {"metres": None}]
)
def test_invalid_views_are_refused(client: TestClient, wrong: dict[str, object]) -> None:
    asked = {"latitude": 48.1, "longitude": 11.5, "metres": 100, **wrong}
    response = client.get("/v1/view", params={k: str(v) for k, v in asked.items() if v is not None})
    assert response.status_code == 422
    assert next(iter(wrong)) in response.json()["detail"]


def test_examples_can_be_downloaded_and_located(client: TestClient) -> None:
    examples = client.get("/v1/examples").json()
    assert [each["name"] for each in examples] == ["town-1", "town-2", "town-3", "elsewhere"]
    photo = client.get(examples[0]["url"]).content
    answer = client.post("/v1/locate", files={"photo": ("a.jpg", photo)}).json()
    assert answer["latitude"] == pytest.approx(examples[0]["latitude"], abs=5e-5)
    small = client.get(f"{examples[0]['url']}?size=100").content
    assert max(read_rgb(io.BytesIO(small)).shape) == 100


@pytest.mark.parametrize("name", ["nothing", "..", "%2e%2e%2fsecret", "town-1%2f..%2ftown-2"])
def test_unknown_examples_are_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/v1/examples/{name}.jpg").status_code == 404
