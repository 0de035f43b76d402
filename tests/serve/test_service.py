"""The server with a real index: its maps, locator and examples."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from skypart.bridge.json_text import fix_to_dict
from skypart.errors import SkyPartError
from skypart.images.decode import RgbImage, read_rgb
from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest
from skypart.model.embedder import Embedder, new_model
from skypart.position.locate import Locator
from skypart.serve.errors import strip_folders
from skypart.serve.options import ServeOptions
from skypart.serve.service import IndexService, _titles
from skypart.serve.state import ServerState
from tests.maps.makers import tile_of
from tests.position.stand_in import ColourEmbedder, Shot, degrees, make_index, quilt, write_quilt
from tests.serve.conftest import encoded, open_app

SHOT = Shot(east=0.0, north=0.0, width=100.0)


@pytest.fixture(scope="module")
def quilt_map() -> RgbImage:
    return quilt(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, quilt_map: RgbImage) -> IndexService:
    """A quilt of 500 x 500 m, and three photos to try: inside, outside, and of unknown place."""
    folder = tmp_path_factory.mktemp("served")
    index = make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])
    photos = folder / "photos"
    photos.mkdir()
    Image.fromarray(SHOT.photo(quilt_map)).save(photos / "inside.png")
    Image.fromarray(Shot(0, 0).photo(quilt(99))).save(photos / "outside.png")
    latitude, longitude = SHOT.place
    (photos / "labels.csv").write_text(f"file,latitude,longitude\ninside.png,{latitude},{longitude}\noutside.png,,\n")
    return IndexService(Locator(index, ColourEmbedder()), photos)


@pytest.fixture(scope="module")
def client(served: IndexService) -> TestClient:
    return open_app(served)


def test_the_response_is_the_locators_fix(client: TestClient, served: IndexService, quilt_map: RgbImage) -> None:
    photo = SHOT.photo(quilt_map)
    answer = client.post("/v1/locate", files={"photo": ("a.png", encoded(photo))}).json()
    expected = fix_to_dict(served.locator.locate(photo, name="a.png"))
    assert {**answer, "seconds": 0, "hints": 0} == {**expected, "seconds": 0, "hints": 0}
    best = answer["candidates"][0]["footprint"]
    assert (best["latitude"], best["longitude"]) == pytest.approx(SHOT.place, abs=5e-4)
    assert {candidate["map_name"] for candidate in answer["candidates"]} == {"town"}


def test_the_index_is_described(client: TestClient, served: IndexService) -> None:
    answer = client.get("/v1/index").json()
    south, west = degrees(-250, -250)
    assert answer["name"] == "town" and answer["maps"] == ["town"]
    assert answer["views"] == sum(entry.views for entry in served.locator.index.manifest.maps) > 0
    assert answer["model"] == ColourEmbedder().digest
    assert (answer["bounds"]["south"], answer["bounds"]["west"]) == pytest.approx((south, west), abs=1e-4)
    assert answer["gsd_m"] == pytest.approx(1.0, rel=0.01)


def test_tiles_and_views_come_from_the_indexed_map(client: TestClient, quilt_map: RgbImage) -> None:
    latitude, longitude = degrees(0, 0)
    tile_x = int((longitude + 180) / 360 * 2**16)
    tile_y = int((1 - np.arcsinh(np.tan(np.radians(latitude))) / np.pi) / 2 * 2**16)
    tile = client.get(f"/tiles/16/{tile_x}/{tile_y}.png")
    assert tile.status_code == 200 and Image.open(io.BytesIO(tile.content)).size == (256, 256)
    assert client.get("/tiles/16/0/0.png").status_code == 204
    view = client.get("/v1/view", params={"latitude": latitude, "longitude": longitude, "metres": 200, "size": 200})
    shown = read_rgb(io.BytesIO(view.content)).astype(int)
    assert np.abs(shown - quilt_map[150:350, 150:350]).mean() < 10
    nowhere = client.get("/v1/view", params={"latitude": -20, "longitude": 50, "metres": 200})
    assert nowhere.status_code == 422 and "inside" in nowhere.json()["detail"]


def test_labelled_examples_have_their_position(client: TestClient, served: IndexService) -> None:
    inside, outside = client.get("/v1/examples").json()
    assert (inside["title"], outside["title"]) == ("inside", "outside")
    assert (inside["latitude"], inside["longitude"]) == pytest.approx(SHOT.place)
    assert outside["latitude"] is None
    assert client.get(outside["url"]).headers["content-type"] == "image/jpeg"
    plain = IndexService(served.locator, served.folder and served.folder / "nothing")
    with pytest.raises(SkyPartError, match="no such folder"):
        plain.examples()
    assert IndexService(served.locator).examples() == []


def test_a_replaced_example_changes_the_version(served: IndexService, tmp_path: Path) -> None:
    def version() -> str:
        return ServerState(IndexService(served.locator, tmp_path), ServeOptions()).index.version

    empty = version()
    Image.new("RGB", (32, 32), "red").save(tmp_path / "a.png")
    red = version()
    Image.new("RGB", (32, 33), "blue").save(tmp_path / "a.png")
    assert len({empty, red, version()}) == 3 and version() == version()


def test_a_broken_example_is_named_without_its_folders(
    served: IndexService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    Image.new("RGB", (32, 32), "red").save(folder / "a.png")
    client = open_app(IndexService(served.locator, folder))
    address = client.get("/v1/examples").json()[0]["url"]
    (folder / "a.png").write_bytes(b"not an image")
    answer = client.get(address)
    assert answer.status_code == 422 and answer.json()["detail"].startswith("a.png: ")
    assert "private" not in answer.text and str(folder) in caplog.text


@pytest.mark.parametrize(
    ("message", "stripped"),
    [
        ("/home/me/photos/a.png: cannot be read", "a.png: cannot be read"),
        ("town: (/srv/maps/x.tif) and '/srv/y'", "town: (x.tif) and 'y'"),
        ("https://host/a/b.tif: gone; photos/a.png 3 m/s 1/2", "https://host/a/b.tif: gone; photos/a.png 3 m/s 1/2"),
    ],
)
def test_local_folders_are_stripped_from_messages(message: str, stripped: str) -> None:
    assert strip_folders(message) == stripped


def test_the_parts_of_a_real_model_are_drawn(
    client: TestClient, served: IndexService, quilt_map: RgbImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.locator, "embedder", Embedder(new_model("untrained:tiny", 112)))
    response = client.post("/v1/parts", files={"photo": ("a.png", encoded(SHOT.photo(quilt_map)))})
    drawn = read_rgb(io.BytesIO(response.content))
    assert response.headers["content-type"] == "image/png" and drawn.shape[2] == 3


def test_an_index_whose_map_was_moved_still_locates_photos(tmp_path: Path, quilt_map: RgbImage) -> None:
    raster = write_quilt(tmp_path / "town.tif", edge=300)
    make_index(tmp_path / "town.skyindex", [raster])
    raster.rename(tmp_path / "elsewhere.tif")
    client = open_app(IndexService(Locator(MapIndex(tmp_path / "town.skyindex"), ColourEmbedder())))
    assert client.get("/v1/index").json()["gsd_m"] is None
    photo = encoded(Shot(10, 10).photo(quilt(1, 300)))
    assert client.post("/v1/locate", files={"photo": ("a.png", photo)}).status_code == 200
    latitude, longitude = degrees(0, 0)
    view = client.get("/v1/view", params={"latitude": latitude, "longitude": longitude, "metres": 100})
    assert view.status_code == 422 and "cannot read the map town" in view.json()["detail"]
    assert client.get("/tiles/16/34000/22000.png").status_code in (204, 422)


def test_keys_in_urls_stay_secret_and_missing_maps_change_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tif = write_quilt(tmp_path / "town.tif", edge=200)
    service = IndexService(Locator(make_index(tmp_path / "i", [tif]), ColourEmbedder()))
    before = ServerState(service, ServeOptions()).index.version
    tif.unlink()
    manifest = IndexManifest.read(tmp_path / "i")
    entry = replace(manifest.maps[0], paths=("https://h.example/a/town.tif?sv=1&sig=SECRET",))
    replace(manifest, maps=(entry,)).write(tmp_path / "i")
    service = IndexService(Locator(MapIndex(tmp_path / "i"), ColourEmbedder()))
    answer = ServerState(service, ServeOptions()).index
    assert answer.attribution == "town.tif" and answer.version != before
    footprint = service.locator.index.search(np.ones((1, ColourEmbedder().dim), np.float32), 1)[0][0].footprint
    with pytest.raises(SkyPartError, match="the server cannot read the map town") as caught:
        service.view(footprint, 64)
    assert "SECRET" not in str(caught.value)


def test_a_map_that_fails_later_is_named_without_its_path(
    tmp_path: Path, quilt_map: RgbImage, caplog: pytest.LogCaptureFixture
) -> None:
    tif = write_quilt(tmp_path / "town.tif")
    client = open_app(IndexService(Locator(make_index(tmp_path / "i", [tif]), ColourEmbedder())))
    assert client.get("/v1/index").json()["gsd_m"] is not None
    tif.write_bytes(tif.read_bytes()[:400])
    latitude, longitude = degrees(0, 0)
    x, y = tile_of(latitude, longitude, 16)
    where = {"latitude": latitude, "longitude": longitude, "metres": 100}
    photo = {"photo": ("a.png", encoded(SHOT.photo(quilt_map)))}
    answers = [
        client.get("/v1/view", params=where),
        client.get(f"/tiles/16/{x}/{y}.png"),
        client.post("/v1/locate", files=photo),
    ]
    for answer in answers:
        assert answer.status_code == 503 and "Retry-After" not in answer.headers
        assert answer.json()["detail"] == "the server cannot read the map town at present; see the server's log"
    assert len(caplog.messages) >= 3 and all(str(tif) in message for message in caplog.messages[:3])


def test_folders_and_hidden_files_are_not_examples(served: IndexService, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "IMG.JPG", "JPEG")
    (tmp_path / "._IMG.JPG").write_bytes(b"\x00\x05\x16\x07 Mac OS X")
    (tmp_path / "folder.jpg").mkdir()
    assert [example.title for example in IndexService(served.locator, tmp_path).examples()] == ["IMG"]


def test_examples_are_named_by_as_much_of_their_path_as_tells_them_apart() -> None:
    folder = Path("/data/town")
    assert _titles([folder / "a.jpg", folder / "b.jpg"]) == ["a", "b"]
    assert _titles([folder / "1" / "150" / "0.jpg", folder / "1" / "200" / "0.jpg"]) == ["150/0", "200/0"]
    assert _titles([folder / "a.jpg", folder / "a.jpg"]) == ["a", "a"] and _titles([]) == []
