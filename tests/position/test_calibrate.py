"""Calibrating an index: outcomes of labelled photos, cross-validation, quality, stored result."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import LocalFrame
from skypart.maps.index import MapIndex
from skypart.maps.manifest import IndexManifest
from skypart.position.calibrate import (
    Outcome,
    cross_validate,
    fit_outcomes,
    locate_labelled,
    measure_outcome,
    measure_quality,
    run_calibration,
    store_calibration,
)
from skypart.position.confidence import Calibration, ErrorSources
from skypart.position.fix import Candidate, Fix, Hints, Place
from skypart.position.labelled import LabelledPhoto, read_labelled
from skypart.position.locate import Locator
from tests.images.photos_with_metadata import packet
from tests.position.stand_in import SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt
from tests.position.test_confidence import evidence, random_outcomes, shifted_outcomes


def outcomes(seed: int, count: int) -> list[Outcome]:
    found, errors = random_outcomes(np.random.default_rng(seed), count)
    return [Outcome(f"{i}", each, error) for i, (each, error) in enumerate(zip(found, errors, strict=True))]


def save(shot: Shot, ground: int, path: Path) -> None:
    """Save a photo with its heading in XMP, so that only one heading is tried."""
    xmp = packet(f'drone-dji:GimbalYawDegree="{shot.heading:+.1f}"')
    Image.fromarray(shot.photo(quilt(ground), 200)).save(path, quality=95, xmp=xmp)


def labelled_photos(folder: Path, inside: int, outside: int) -> Path:
    """Photos of the map, photos of another place without a position, and two that show nothing."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    lines = ["file,latitude,longitude"]
    for number in range(inside + outside):
        east, north, heading, width = rng.uniform((-150, -150, 0, 85), (150, 150, 360, 115)).tolist()
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


def use_outcomes(monkeypatch: pytest.MonkeyPatch, some: list[Outcome]) -> None:
    """Let `run_calibration` use these outcomes instead of locating photos."""
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", lambda *_: some)
    monkeypatch.setattr("skypart.position.calibrate.read_labelled", lambda _: [])
    monkeypatch.setattr("skypart.position.calibrate.MIN_PHOTOS", 0)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    folder = tmp_path_factory.mktemp("town")
    return make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])


def test_labelled_photos_become_a_calibration_of_the_index(town: MapIndex, tmp_path: Path) -> None:
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
        "the headings of the photos were not used"
    )
    with Image.open(tmp_path / "out" / "calibration.png") as image:
        assert image.width > 1000
    report = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert report["quality"]["photos"] == 44 and report["quality"]["outside"] == 14
    assert report["quality"]["accepted"] > 0.7 and report["quality"]["false_accepts"] <= 0.15
    assert report["quality"]["covered"] > 0.85 and report["quality"]["wrong"] < 0.1
    again = Locator(MapIndex(town.folder), ColourEmbedder())
    assert again.calibrated and again.calibration == Calibration.from_dict(report["calibration"])
    assert again.calibration.source == "58 photos of photos"
    there = again.locate(Shot(120.0, -90.0, 90.0, 100.0).photo(quilt(1)))
    assert there.found and there.calibrated and there.radius_m is not None and there.radius_m < 60
    known = Hints(heading_deg=90.0)  # as for the photos it was calibrated on
    assert not again.locate(Shot(120.0, -90.0, 90.0, 100.0).photo(quilt(90)), hints=known).found


def test_too_few_photos_store_nothing(town: MapIndex, tmp_path: Path) -> None:
    before = IndexManifest.read(town.folder)
    folder = labelled_photos(tmp_path / "photos", 8, 3)
    with pytest.raises(SkyPartError, match="13 photos are too few to calibrate with; give 25"):
        run_calibration(Locator(town, ColourEmbedder()), folder, [], tmp_path / "c.png")
    assert IndexManifest.read(town.folder) == before and not (tmp_path / "c.png").exists()


def test_an_unknown_figure_format_is_reported_first(town: MapIndex, tmp_path: Path) -> None:
    for name in ("calibration", "calibration.json", "calibration.xyz"):
        with pytest.raises(SkyPartError, match="not an image format"):
            run_calibration(Locator(town, ColourEmbedder()), tmp_path / "none", [], tmp_path / name)


def test_nothing_is_stored_if_too_few_photos_are_located_reliably(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty photos, twelve of them correct: a radius needs nineteen."""
    before = IndexManifest.read(town.folder)
    some = outcomes(1, 400)
    few = [o for o in some if o.error_m < 50][:12] + [o for o in some if o.error_m > 50][:18]
    use_outcomes(monkeypatch, few)
    with pytest.raises(SkyPartError, match="too few of 30 photos are located reliably enough"):
        run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    assert IndexManifest.read(town.folder) == before


def test_storing_a_calibration_keeps_maps_added_in_the_meantime(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "a.tif", edge=200)])
    locator = Locator(index, ColourEmbedder())
    make_index(tmp_path / "i", [write_quilt(tmp_path / "b.tif", seed=3, edge=200, east=900.0)])
    store_calibration(locator, SURE)
    manifest = IndexManifest.read(tmp_path / "i")
    assert [entry.name for entry in manifest.maps] == ["a", "b"]
    assert manifest.calibration is not None and Calibration.from_dict(manifest.calibration) == SURE


def test_a_photo_is_judged_by_a_calibration_fitted_without_it() -> None:
    """Inverting the outcome of a photo changes the confidence of others, but not its own."""
    some = outcomes(2, 120)
    confidence, radius = cross_validate(some)
    inverted = [replace_error(o, math.inf if o.error_m < 50 else 1.0) if i == 17 else o for i, o in enumerate(some)]
    other, other_radius = cross_validate(inverted)
    assert other[17] == confidence[17] and other_radius[17] == radius[17]
    assert np.any(other != confidence), "it counts for the others"


def test_a_photo_is_judged_by_a_calibration_fitted_without_its_map() -> None:
    some = outcomes(2, 120)
    over = [f"map {i % 3}" for i in range(120)]
    confidence, radius = cross_validate(some, groups=over)
    inverted = [replace_error(o, math.inf if o.error_m < 50 else 1.0) if i % 9 == 0 else o for i, o in enumerate(some)]
    other, other_radius = cross_validate(inverted, groups=over)
    own = np.arange(120) % 3 == 0
    assert np.array_equal(other[own], confidence[own]) and np.array_equal(other_radius[own], radius[own])
    assert np.any(other[~own] != confidence[~own]), "it counts for the other maps"


def replace_error(outcome: Outcome, error: float) -> Outcome:
    return replace(outcome, error_m=error)


def test_quality_by_hand() -> None:
    errors = [5.0, 30.0, 100.0, 5.0, math.inf, math.inf]
    some = [Outcome("", evidence(0.5), error) for error in errors]
    confidence = np.array([0.95, 0.95, 0.95, 0.15, 0.95, 0.15])
    radius = np.array([10.0, 20.0, 150.0, math.inf, 40.0, math.inf])
    found = measure_quality(some, confidence, radius)
    assert (found.photos, found.outside) == (4, 2)
    assert found.accepted == 3 / 4 and found.false_accepts == 1 / 2
    assert found.covered == 2 / 3, "5 in 10, not 30 in 20, 100 in 150"
    assert found.wrong == 2 / 4, "100 m and the one from outside"
    assert found.median_radius_m == 30.0
    assert found.calibration_error == pytest.approx(4 / 6 * abs(0.95 - 2 / 4) + 2 / 6 * abs(0.15 - 1 / 2))


def test_shares_of_nothing_are_null_in_json() -> None:
    some = [Outcome("", evidence(0.5), 5.0)]
    found = measure_quality(some, np.array([0.1]), np.array([math.inf]))
    assert math.isnan(found.covered) and found.accepted == 0.0
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["false_accepts"] is None


def test_cross_validated_confidence_and_radius_are_reliable() -> None:
    some = outcomes(5, 900)
    confidence, radius = cross_validate(some)
    found = measure_quality(some, confidence, radius)
    assert 0.9 < found.covered <= 1.0 and found.wrong < 0.06 and found.calibration_error < 0.06
    assert found.accepted > 0.2


def test_invalid_arguments_are_reported_before_locating(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skypart.position.calibrate.locate_labelled", lambda *_: pytest.fail("worked"))
    locator, folder = Locator(town, ColourEmbedder()), labelled_photos(tmp_path / "photos", 20, 5)
    before = IndexManifest.read(town.folder)
    (tmp_path / "taken.json").mkdir()
    for outside, figure, words in (
        ([tmp_path / "typo"], tmp_path / "c.png", "typo: no such file"),
        ([], town.folder / "index.png", "is inside the index"),
        ([], tmp_path / "taken.png", "is a folder"),
    ):
        with pytest.raises(SkyPartError, match=words):
            run_calibration(locator, folder, outside, figure)
    assert IndexManifest.read(town.folder) == before


@pytest.mark.parametrize(("outside", "strangers"), [(0, 0), (2, 0), (0, 1)])
def test_a_warning_is_printed_if_all_photos_are_of_the_map(
    outside: int,
    strangers: int,
    town: MapIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
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
    warned = "give photos of other places too (--outside)" in caplog.text
    assert warned == (outside + strangers == 0)


def test_a_damaged_photo_is_left_out(town: MapIndex, tmp_path: Path) -> None:
    folder = labelled_photos(tmp_path / "photos", 3, 0)
    (folder / "001.jpg").write_bytes(b"")
    located = locate_labelled(Locator(town, ColourEmbedder()), read_labelled(folder))
    assert [Path(each.photo).name for each in located] == ["000.jpg", "002.jpg"]


def test_outcomes_have_the_direction_of_the_error(town: MapIndex, tmp_path: Path) -> None:
    """The label is 20 m west and 10 m north of the truth: the photo is located east and south of it."""
    photos = read_labelled(labelled_photos(tmp_path / "photos", 2, 1))
    frame = LocalFrame(latitude=photos[0].latitude or 0.0, longitude=photos[0].longitude or 0.0)
    moved = frame.to_degrees(-20.0, 10.0)
    label = replace(photos[0], latitude=float(moved.latitude), longitude=float(moved.longitude))
    found, outside = locate_labelled(Locator(town, ColourEmbedder()), [label, photos[2]])
    assert (found.east_m, found.north_m) == pytest.approx((20.0, -10.0), abs=5.0)
    assert math.hypot(found.east_m, found.north_m) == pytest.approx(found.error_m, abs=1e-3)
    assert outside.outside and math.isnan(outside.east_m) and math.isnan(outside.north_m)


def test_the_common_error_of_a_map_is_stored_as_its_floor(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = IndexManifest.read(town.folder)
    found, errors, offsets = shifted_outcomes(np.random.default_rng(1), 60, (6.0, -8.0))
    some = [Outcome("", each, error, *offset) for each, error, offset in zip(found, errors, offsets, strict=True)]
    use_outcomes(monkeypatch, some)
    text = run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    stored = IndexManifest.read(town.folder).calibration
    assert stored is not None and 9.8 < Calibration.from_dict(stored).sources.map_m < 13.0
    assert "median 95 % radius          12 m" in text
    assert fit_outcomes(some, "maps nobody will use", sources=ErrorSources()).sources.map_m == 0.0, "only if asked for"
    before.write(town.folder)


def test_a_calibration_that_cannot_be_validated_is_stored_with_a_note(
    town: MapIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wrong photo among many: the fit without its fold has no wrong one."""
    before = IndexManifest.read(town.folder)
    some = outcomes(1, 400)
    few = [o for o in some if o.error_m < 20][:60] + [o for o in some if o.error_m > 50][:1]
    use_outcomes(monkeypatch, few)
    text = run_calibration(Locator(town, ColourEmbedder()), tmp_path, [], tmp_path / "c.png")
    assert "the quality of the calibration is unknown" in text
    assert json.loads((tmp_path / "c.json").read_text())["quality"] is None
    assert IndexManifest.read(town.folder).calibration != before.calibration
    before.write(town.folder)


def test_an_outcome_is_measured_from_the_best_guess() -> None:
    view = Candidate(footprint=Footprint(latitude=48.0, longitude=11.0, metres=100.0), score=0.9, map_name="town")
    fix = Fix(photo="a", evidence=evidence(0.8), best_guess=Place(48.001, 11.0), candidates=(view,))
    inside = LabelledPhoto(path=Path("a"), latitude=48.0, longitude=11.0)
    found = measure_outcome(inside, fix)
    assert found is not None and (found.photo, found.map_name, found.evidence) == ("a", "town", fix.evidence)
    assert found.error_m == pytest.approx(111.2, abs=0.1) and found.north_m == pytest.approx(111.2, abs=0.1)
    assert found.east_m == pytest.approx(0.0, abs=1e-6) and not found.outside
    elsewhere = measure_outcome(replace(inside, latitude=None, longitude=None), fix)
    assert elsewhere is not None and elsewhere.outside and math.isnan(elsewhere.east_m)
    assert measure_outcome(inside, Fix(photo="a", reason="dark")) is None


def test_confidence_below_the_threshold_has_no_radius() -> None:
    confidence, radius = cross_validate(outcomes(5, 300))
    refused = ~np.isfinite(radius)
    assert 0 < refused.sum() < 300
    assert confidence[refused].max() < np.median(confidence[~refused])
