"""Calibration from photos to the index: outcomes, cross-validation, figures of merit, picture."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.geo.geodesy import LocalFrame
from skypart.maps.index import MapIndex
from skypart.maps.manifest import Manifest
from skypart.position.calibrate import (
    Outcome,
    cross_validate,
    draw,
    fit_outcomes,
    locate_labelled,
    quality,
    run_calibration,
    store_calibration,
)
from skypart.position.confidence import Calibration
from skypart.position.fix import Fix, Hints
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from tests.images.photos_with_metadata import packet
from tests.position.stand_in import SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt
from tests.position.test_confidence import drawn, shifted


def outcomes(seed: int, count: int) -> list[Outcome]:
    found, errors = drawn(np.random.default_rng(seed), count)
    return [
        Outcome(Fix(photo=f"{i}", evidence=e), error) for i, (e, error) in enumerate(zip(found, errors, strict=True))
    ]


def save(shot: Shot, ground: int, path: Path) -> None:
    """A photo that says which way is up in it, so that one direction is tried."""
    xmp = packet(f'drone-dji:GimbalYawDegree="{shot.heading:+.1f}"')
    Image.fromarray(shot.photo(quilt(ground), 200)).save(path, quality=95, xmp=xmp)


def labelled_photos(folder: Path, inside: int, outside: int) -> Path:
    """Photos of the map and of another place, the latter without a position; two in which nothing can be seen."""
    folder.mkdir()
    dice = np.random.default_rng(4)
    lines = ["file,latitude,longitude"]
    for number in range(inside + outside):
        east, north, heading, width = dice.uniform((-150, -150, 0, 85), (150, 150, 360, 115)).tolist()
        shot = Shot(east, north, heading, width)
        mine = number < inside
        save(shot, 1 if mine else 77, folder / f"{number:03d}.jpg")
        place = f"{shot.place[0]:.8f},{shot.place[1]:.8f}" if mine else ","
        lines.append(f"{number:03d}.jpg,{place}")
    for name in ("black.png", "white.png"):
        Image.new("RGB", (50, 50), name.removesuffix(".png")).save(folder / name)
        lines.append(f"{name},,")
    (folder / "positions.csv").write_text("\n".join(lines) + "\n")
    return folder


def located_before(monkeypatch: pytest.MonkeyPatch, some: list[Outcome]) -> None:
    """Let a calibration begin with these outcomes instead of photos."""
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", lambda *_: some)
    monkeypatch.setattr("skypart.position.calibrate.read_labelled", lambda _: [])
    monkeypatch.setattr("skypart.position.calibrate.ENOUGH", 0)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    folder = tmp_path_factory.mktemp("town")
    return make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])


def test_labelled_photos_become_a_calibration_in_the_index(town: MapIndex, tmp_path: Path) -> None:
    folder = labelled_photos(tmp_path / "photos", 44, 10)
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    for number in range(4):
        save(Shot(30.0 * number, -20.0, 40.0 * number, 100.0), 55, strangers / f"{number}.jpg")
    locator = Locator(town, ColourEmbedder())
    text = run_calibration(locator, folder, [strangers], tmp_path / "out" / "calibration.png")
    assert "calibrated on 44 photos of the map and 14 from outside" in text and "false accepts" in text
    embedder = locator.embedder
    assert isinstance(embedder, ColourEmbedder) and embedder.calls <= 58 * (1 + 4 * 3) + 3, (
        "the photos' own headings were not used"
    )
    with Image.open(tmp_path / "out" / "calibration.png") as picture:
        assert picture.width > 1000
    report = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert report["quality"]["photos"] == 44 and report["quality"]["outside"] == 14
    assert report["quality"]["accepted"] > 0.7 and report["quality"]["false_accepts"] <= 0.15
    assert report["quality"]["covered"] > 0.85 and report["quality"]["wrong"] < 0.1
    again = Locator(MapIndex(town.folder), ColourEmbedder())
    assert again.calibrated and again.calibration == Calibration.from_dict(report["calibration"])
    assert again.calibration.source == "58 photos of photos"
    there = again.locate(Shot(120.0, -90.0, 90.0, 100.0).photo(quilt(1)))
    assert there.found and there.calibrated and there.radius_m is not None and there.radius_m < 60
    known = Hints(heading_deg=90.0)  # as those it was calibrated on
    assert not again.locate(Shot(120.0, -90.0, 90.0, 100.0).photo(quilt(90)), hints=known).found


def test_too_few_photos_store_nothing(town: MapIndex, tmp_path: Path) -> None:
    before = Manifest.read(town.folder)
    folder = labelled_photos(tmp_path / "photos", 8, 3)
    with pytest.raises(SkyPartError, match="13 photos are too few to calibrate with; give 25"):
        run_calibration(Locator(town, ColourEmbedder()), folder, [], tmp_path / "c.png")
    assert Manifest.read(town.folder) == before and not (tmp_path / "c.png").exists()


def test_a_picture_of_no_format_is_refused_before_the_work(town: MapIndex, tmp_path: Path) -> None:
    for name in ("calibration", "calibration.json", "calibration.xyz"):
        with pytest.raises(SkyPartError, match="not an image format"):
            run_calibration(Locator(town, ColourEmbedder()), tmp_path / "none", [], tmp_path / name)


def test_photos_too_unsure_for_a_radius_store_nothing(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty photos, a dozen of them right: no threshold leaves nineteen."""
    before = Manifest.read(town.folder)
    some = outcomes(1, 400)
    few = [o for o in some if o.error_m < 50][:12] + [o for o in some if o.error_m > 50][:18]
    located_before(monkeypatch, few)
    with pytest.raises(SkyPartError, match="of 30 photos too few are located surely enough"):
        run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    assert Manifest.read(town.folder) == before


def test_storing_keeps_maps_that_were_added_meanwhile(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "a.tif", edge=200)])
    locator = Locator(index, ColourEmbedder())
    make_index(tmp_path / "i", [write_quilt(tmp_path / "b.tif", seed=3, edge=200, east=900.0)])
    store_calibration(locator, SURE)
    manifest = Manifest.read(tmp_path / "i")
    assert [entry.name for entry in manifest.maps] == ["a", "b"]
    assert manifest.calibration is not None and Calibration.from_dict(manifest.calibration) == SURE


def test_no_photo_is_judged_by_a_calibration_that_has_seen_it() -> None:
    """A photo whose outcome is turned round changes its own confidence only through others: not at all in its fold."""
    some = outcomes(2, 120)
    confidence, radius = cross_validate(some)
    turned = [replace_error(o, math.inf if o.error_m < 50 else 1.0) if i == 17 else o for i, o in enumerate(some)]
    other, other_radius = cross_validate(turned)
    assert other[17] == confidence[17] and other_radius[17] == radius[17]
    assert np.any(other != confidence), "the others do see it"


def test_no_photo_is_judged_by_a_calibration_that_has_seen_its_map() -> None:
    some = outcomes(2, 120)
    over = [f"map {i % 3}" for i in range(120)]
    confidence, radius = cross_validate(some, groups=over)
    turned = [replace_error(o, math.inf if o.error_m < 50 else 1.0) if i % 9 == 0 else o for i, o in enumerate(some)]
    other, other_radius = cross_validate(turned, groups=over)
    own = np.arange(120) % 3 == 0
    assert np.array_equal(other[own], confidence[own]) and np.array_equal(other_radius[own], radius[own])
    assert np.any(other[~own] != confidence[~own]), "the other maps do see it"


def replace_error(outcome: Outcome, error: float) -> Outcome:
    return replace(outcome, error_m=error)


def test_figures_of_merit_by_hand() -> None:
    errors = [5.0, 30.0, 100.0, 5.0, math.inf, math.inf]
    some = [Outcome(Fix(photo=""), error) for error in errors]
    confidence = np.array([0.95, 0.95, 0.95, 0.15, 0.95, 0.15])
    radius = np.array([10.0, 20.0, 150.0, math.inf, 40.0, math.inf])
    found = quality(some, confidence, radius)
    assert (found.photos, found.outside) == (4, 2)
    assert found.accepted == 3 / 4 and found.false_accepts == 1 / 2
    assert found.covered == 2 / 3, "5 in 10, not 30 in 20, 100 in 150"
    assert found.wrong == 2 / 4, "100 m and the one from outside"
    assert found.median_radius_m == 30.0
    assert found.calibration_error == pytest.approx(4 / 6 * abs(0.95 - 2 / 4) + 2 / 6 * abs(0.15 - 1 / 2))


def test_figures_of_nothing_are_null_in_json() -> None:
    some = [Outcome(Fix(photo=""), 5.0)]
    found = quality(some, np.array([0.1]), np.array([math.inf]))
    assert math.isnan(found.covered) and found.accepted == 0.0
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["false_accepts"] is None


def test_cross_validated_figures_hold(tmp_path: Path) -> None:
    some = outcomes(5, 900)
    confidence, radius = cross_validate(some)
    found = quality(some, confidence, radius)
    assert 0.9 < found.covered <= 1.0 and found.wrong < 0.06 and found.calibration_error < 0.06
    assert found.accepted > 0.2
    draw(some, confidence, radius, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size[0] > 2 * picture.size[1]


def test_mistakes_are_told_before_hours_of_work(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", lambda *_: pytest.fail("worked"))
    locator, folder = Locator(town, ColourEmbedder()), labelled_photos(tmp_path / "photos", 20, 5)
    before = Manifest.read(town.folder)
    (tmp_path / "taken.json").mkdir()
    for outside, picture, words in (
        ([tmp_path / "typo"], tmp_path / "c.png", "typo: no such file"),
        ([], town.folder / "index.png", "lies in the index"),
        ([], tmp_path / "taken.png", "is a folder"),
    ):
        with pytest.raises(SkyPartError, match=words):
            run_calibration(locator, folder, outside, picture)
    assert Manifest.read(town.folder) == before


@pytest.mark.parametrize(("outside", "strangers"), [(0, 0), (2, 0), (0, 1)])
def test_photos_of_the_map_alone_are_warned_of_before_the_work(
    outside: int,
    strangers: int,
    town: MapIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(*_: object) -> list[Outcome]:
        raise SkyPartError("worked")

    places = [LabelledPhoto(path=tmp_path / f"{i}.jpg", latitude=48.0, longitude=9.0) for i in range(30)]
    places[:outside] = [replace(place, latitude=None, longitude=None) for place in places[:outside]]
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", work)
    monkeypatch.setattr("skypart.position.calibrate.read_labelled", lambda _: places)
    (tmp_path / "stranger.jpg").touch()
    with pytest.raises(SkyPartError, match="worked"):
        run_calibration(
            Locator(town, ColourEmbedder()), tmp_path, [tmp_path / "stranger.jpg"][:strangers], tmp_path / "c.png"
        )
    warned = "give photos of other places too (--outside)" in capsys.readouterr().err
    assert warned == (outside + strangers == 0)


def test_a_damaged_photo_is_left_out(town: MapIndex, tmp_path: Path) -> None:
    folder = labelled_photos(tmp_path / "photos", 3, 0)
    (folder / "001.jpg").write_bytes(b"")
    located = locate_labelled(Locator(town, ColourEmbedder()), read_labelled(folder))
    assert [Path(each.fix.photo).name for each in located] == ["000.jpg", "002.jpg"]


def test_the_direction_of_an_error_is_kept(town: MapIndex, tmp_path: Path) -> None:
    """Labels 20 m west and 10 m north of the truth: the photos are found east and south of them."""
    photos = read_labelled(labelled_photos(tmp_path / "photos", 2, 1))
    frame = LocalFrame(latitude=photos[0].latitude or 0.0, longitude=photos[0].longitude or 0.0)
    moved = frame.to_degrees(-20.0, 10.0)
    label = replace(photos[0], latitude=float(moved.latitude), longitude=float(moved.longitude))
    found, outside = locate_labelled(Locator(town, ColourEmbedder()), [label, photos[2]])
    assert (found.east_m, found.north_m) == pytest.approx((20.0, -10.0), abs=5.0)
    assert math.hypot(found.east_m, found.north_m) == pytest.approx(found.error_m, abs=1e-3)
    assert outside.outside and math.isnan(outside.east_m) and math.isnan(outside.north_m)


def test_what_the_photos_of_a_map_err_alike_is_stored_as_the_maps_own_error(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Manifest.read(town.folder)
    found, errors, offsets = shifted(np.random.default_rng(1), 60, (6.0, -8.0))
    some = [
        Outcome(Fix(photo="", evidence=e), error, *offset)
        for e, error, offset in zip(found, errors, offsets, strict=True)
    ]
    located_before(monkeypatch, some)
    text = run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    stored = Manifest.read(town.folder).calibration
    assert stored is not None and 9.8 < Calibration.from_dict(stored).floor_m < 13.0
    assert "median 95 % radius          12 m" in text
    assert fit_outcomes(some, "maps nobody will use").floor_m == 0.0, "the benchmark's maps have no error of their own"
    before.write(town.folder)


def test_a_calibration_that_cannot_be_checked_is_stored_and_says_so(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wrong photo of many: the fold without it has nothing to learn from."""
    before = Manifest.read(town.folder)
    some = outcomes(1, 400)
    few = [o for o in some if o.error_m < 20][:60] + [o for o in some if o.error_m > 50][:1]
    located_before(monkeypatch, few)
    text = run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    assert "nothing can be said of how well it holds" in text
    assert json.loads((tmp_path / "c.json").read_text())["quality"] is None
    assert Manifest.read(town.folder).calibration != before.calibration
    before.write(town.folder)
