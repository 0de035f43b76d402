"""Locating photos cut out of a map: place, heading and width, priors and hints, and photos without a fix."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.index import MapIndex
from skypart.maps.store import Circle, Hit
from skypart.maps.views import ViewOptions
from skypart.position.camera import drone_position, ground_width
from skypart.position.confidence import Calibration, GroupErrors, default_calibration
from skypart.position.fix import Fix, Hints, Place, Prior
from skypart.position.locate import Locator, angle_between, distinct_hits, unusable_reason
from skypart.position.search import LocateOptions
from tests.maps.makers import write_raster
from tests.position.stand_in import EDGE, NORTH, SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt
from tests.position.test_votes import hits


@pytest.fixture(scope="module")
def town() -> RgbImage:
    return quilt(1)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    folder = tmp_path_factory.mktemp("town")
    return make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])


def sure(index: MapIndex, options: LocateOptions | None = None, calibration: Calibration = SURE) -> Locator:
    """A locator whose confidence grows with the inliers, instead of the default calibration."""
    locator = Locator(index, ColourEmbedder(), options)
    locator.calibration = calibration
    return locator


@pytest.fixture
def locator(index: MapIndex) -> Locator:
    return sure(index)


def error(fix: Fix, shot: Shot) -> float:
    assert fix.latitude is not None and fix.longitude is not None
    return float(
        distance_m(
            latitude=fix.latitude, longitude=fix.longitude, to_latitude=shot.place[0], to_longitude=shot.place[1]
        )
    )


SHOTS = [
    Shot(20.0, -40.0, 0.0, 100.0),
    Shot(120.0, -90.0, 90.0, 100.0),
    Shot(-150.0, 40.0, 215.0, 110.0),
    Shot(60.0, 140.0, 301.0, 95.0),
    Shot(-70.0, -130.0, 33.0, 85.0),
    Shot(150.0, 150.0, 160.0, 100.0),
]


@pytest.mark.parametrize("shot", SHOTS, ids=str)
def test_a_photo_is_located_with_its_heading_and_width(locator: Locator, town: RgbImage, shot: Shot) -> None:
    fix = locator.locate(shot.photo(town), name="a.jpg")
    assert fix.found and fix.refined and not fix.reason and fix.photo == "a.jpg"
    assert error(fix, shot) < 4.0
    assert fix.heading_deg is not None and abs((fix.heading_deg - shot.heading + 180) % 360 - 180) < 4.0
    assert fix.ground_m == pytest.approx(shot.width, rel=0.12)
    assert fix.ground_m is not None and fix.radius_m is not None
    assert fix.evidence is not None and fix.best_guess == (fix.latitude, fix.longitude)
    scale = 0.1 * fix.ground_m / math.sqrt(fix.evidence.inliers)
    assert fix.radius_m == pytest.approx(SURE.refined.matching * scale) and fix.confidence > 0.5
    assert error(fix, shot) < fix.radius_m and fix.seconds > 0


def test_a_photo_that_is_not_square_is_located(locator: Locator, town: RgbImage) -> None:
    """100 m of ground across, 75 m along."""
    shot = Shot(40.0, 60.0, 30.0, 100.0)
    square = shot.photo(town, 320)
    fix = locator.locate(square[40:280])
    assert error(fix, shot) < 5.0
    assert fix.ground_m == pytest.approx(100.0, rel=0.12)
    assert fix.heading_deg == pytest.approx(30.0, abs=5.0)


def test_candidates_and_peaks_are_sorted_and_apart(locator: Locator, town: RgbImage) -> None:
    fix = locator.locate(SHOTS[1].photo(town))
    scores = [candidate.score for candidate in fix.candidates]
    assert scores == sorted(scores, reverse=True) and 1 <= len(scores) <= 5
    assert {candidate.map_name for candidate in fix.candidates} == {"town"}
    assert (
        fix.evidence is not None
        and fix.peaks[0].weight == fix.evidence.agreement
        and sum(peak.weight for peak in fix.peaks) <= 1 + 1e-9
    )


def test_the_result_does_not_depend_on_earlier_photos(index: MapIndex, town: RgbImage) -> None:
    alone = [replace(sure(index).locate(shot.photo(town)), seconds=0.0) for shot in SHOTS[:2]]
    one = sure(index)
    cv2.setRNGSeed(1234)
    in_turn = [replace(one.locate(shot.photo(town)), seconds=0.0) for shot in reversed(SHOTS[:2])]
    assert alone == in_turn[::-1]


def test_a_photo_from_elsewhere_gets_evidence_and_a_best_guess_but_no_fix(locator: Locator) -> None:
    strange = quilt(77)
    for shot in SHOTS:
        fix = locator.locate(shot.photo(strange))
        assert not fix.found and fix.latitude is None and fix.radius_m is None and fix.heading_deg is None
        assert "resembles" in fix.reason and fix.candidates and fix.confidence < SURE.threshold
        assert fix.evidence is not None and fix.best_guess is not None
        if not fix.evidence.matched:
            assert fix.best_guess == Place(fix.peaks[0].latitude, fix.peaks[0].longitude)
            assert fix.evidence.scale_m == fix.peaks[0].spread_m


def photo_of(kind: str, town: RgbImage) -> RgbImage:
    rng = np.random.default_rng(0)
    rows = np.linspace(0, 1, 300)[:, None, None]
    sky = (np.array([90, 140, 230]) * (1 - rows) + np.array([210, 215, 220]) * rows).repeat(400, axis=1)
    made = {
        "black": np.zeros((300, 400, 3)),
        "night": rng.normal(3, 3, (300, 400, 3)),
        "white": np.full((300, 400, 3), 255),
        "overexposed": rng.normal(252, 3, (300, 400, 3)),
        "grey": rng.normal(120, 3, (300, 400, 3)),
        "sky": sky + rng.normal(0, 2, (300, 400, 3)),
        "clouds": sky + 60 * cv2.GaussianBlur(rng.normal(0, 30, (300, 400, 1)), (0, 0), 25)[..., None],
        "blurred": cv2.GaussianBlur(SHOTS[0].photo(town, 400), (0, 0), 25),
    }
    return np.asarray(np.clip(made[kind], 0, 255), dtype=np.uint8)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("black", "almost black"),
        ("night", "almost black"),
        ("white", "almost white"),
        ("overexposed", "almost white"),
        ("grey", "of one colour"),
        ("sky", "blurred or shows only sky"),
        ("clouds", "blurred or shows only sky"),
        ("blurred", "blurred or shows only sky"),
    ],
)
def test_a_photo_that_shows_nothing_gets_a_reason_and_is_not_embedded(
    locator: Locator, town: RgbImage, kind: str, words: str
) -> None:
    embedder = locator.embedder
    assert isinstance(embedder, ColourEmbedder)
    fix = locator.locate(photo_of(kind, town), name="p")
    assert not fix.found and words in fix.reason and fix.photo == "p"
    assert fix.evidence is None and fix.best_guess is None and fix.candidates == () and fix.confidence == 0.0
    assert embedder.calls == 0


def test_a_dim_hazy_or_slightly_blurred_photo_is_usable() -> None:
    roofs = np.random.default_rng(0).integers(40, 200, (40, 40, 3)).astype(np.float32)
    photo = cv2.resize(roofs, (400, 400), interpolation=cv2.INTER_NEAREST)
    for dimmed in (photo, photo * 0.2, photo * 0.3 + 160, cv2.GaussianBlur(photo, (0, 0), 6)):
        assert unusable_reason(dimmed.astype(np.uint8)) == ""


@pytest.mark.parametrize("shape", [(1, 1), (2, 900), (900, 2), (5, 5)])
def test_a_photo_of_any_shape_gets_a_result(locator: Locator, shape: tuple[int, int]) -> None:
    photo = np.random.default_rng(0).integers(0, 255, (*shape, 3), dtype=np.uint8)
    fix = locator.locate(photo)
    assert fix.found or fix.reason


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    """A map with the same 260 x 260 m of ground twice, side by side."""
    folder = tmp_path_factory.mktemp("twins")
    tile = quilt(5, 260)
    affine = Affine(1.0, 0.0, 500_000.0 - 260, 0.0, -1.0, NORTH + 130)
    both = np.concatenate([tile, tile], axis=1).transpose(2, 0, 1)
    return make_index(folder / "i", [write_raster(folder / "twins.tif", both, "EPSG:32632", affine)])


def test_a_prior_decides_between_twins(twins: MapIndex) -> None:
    photo = Shot(0.0, 10.0, 40.0, 90.0).photo(quilt(5, 260))
    locator = sure(twins)
    free = locator.locate(photo)
    assert len(free.peaks) >= 2 and free.peaks[0].weight < 0.5, "without a prior both are equally likely"
    for east in (-130.0, 130.0):
        latitude, longitude = Shot(east, 0.0).place
        prior = Prior(latitude=latitude, longitude=longitude, radius_m=90.0)
        fix = locator.locate(photo, prior=prior)
        assert error(fix, Shot(east, 10.0)) < 4.0
        assert fix.evidence is not None and fix.evidence.agreement > 0.5
        for candidate in fix.candidates:
            off = distance_m(
                latitude=latitude,
                longitude=longitude,
                to_latitude=candidate.footprint.latitude,
                to_longitude=candidate.footprint.longitude,
            )
            assert off <= 90.0 + 0.71 * max(twins.manifest.options.sizes_m)


def test_a_prior_outside_the_map_gives_no_fix(locator: Locator, town: RgbImage) -> None:
    latitude, longitude = Shot(5000.0, 0.0).place
    fix = locator.locate(SHOTS[0].photo(town), prior=Prior(latitude=latitude, longitude=longitude, radius_m=500.0))
    assert not fix.found and fix.reason == "the map has no view within the given radius" and fix.seconds > 0


def test_views_of_a_size_that_the_camera_cannot_see_are_left_out(tmp_path: Path, town: RgbImage) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "town.tif")], ViewOptions((100.0, 400.0), 0.5))
    locator = sure(index)
    photo = SHOTS[0].photo(town)

    def sizes(hints: Hints) -> set[float]:
        return {hit.footprint.metres for hit in locator.rank_views(_embedding(locator, photo), None, hints)}

    assert sizes(Hints()) == {100.0, 400.0}
    straight = {"tilt_deg": 90.0, "fov_deg": 2 * math.degrees(math.atan(0.5))}  # the ground is as wide as the altitude
    for width, kept in ((90.0, {100.0}), (114.0, {100.0}), (115.0, {100.0, 400.0})):  # 400 m is 3.5 widths of 114.3 m
        assert sizes(Hints(altitude_m=width, **straight)) == kept
    for width, kept in ((249.0, {100.0, 400.0}), (251.0, {400.0}), (350.0, {400.0})):  # 100 m is 0.4 widths of 250 m
        assert sizes(Hints(altitude_m=width, **straight)) == kept
    assert sizes(Hints(altitude_m=9000.0, **straight)) == {100.0, 400.0}, "if none fits, all are kept"
    assert sizes(Hints(altitude_m=90.0)) == {100.0, 400.0}, "the altitude alone gives no width"


def _embedding(locator: Locator, photo: RgbImage) -> Any:
    return locator.reader.read_photo(photo)[0]


@pytest.mark.parametrize(
    ("hints", "width"),
    [
        (Hints(altitude_m=100.0, fov_deg=90.0, tilt_deg=90.0), 200.0),
        (Hints(altitude_m=100.0, fov_deg=90.0, tilt_deg=30.0), 400.0),
        (Hints(altitude_m=100.0, fov_deg=90.0), 200.0 / math.sin(math.radians(60))),
        (Hints(altitude_m=100.0), None),
        (Hints(fov_deg=90.0), None),
    ],
)
def test_the_width_of_ground_a_camera_sees(hints: Hints, width: float | None) -> None:
    found = ground_width(hints)
    assert found is None if width is None else found == pytest.approx(width)


def test_a_photo_of_any_heading_needs_one_forward_pass(index: MapIndex, town: RgbImage) -> None:
    """That of the photo, besides the blank images that positional parts come from: the index has the map's tokens."""
    shot = SHOTS[2]
    blank = 3
    for heading in (None, shot.heading):
        locator = sure(index)
        fix = locator.locate(shot.photo(town), hints=Hints(heading_deg=heading))
        assert error(fix, shot) < 4.0
        assert isinstance(locator.embedder, ColourEmbedder)
        assert locator.embedder.calls == blank + 1


def oblique(town: RgbImage) -> tuple[RgbImage, Shot]:
    """A photo of a camera with a field of view of 55 degrees, tilted 60 degrees below the horizon and looking north.

    It shows a trapezium of ground, 70 m wide at its near edge and 130 m at its far edge. The shot is at its centre,
    where the diagonals cross.
    """
    near, far, half = 75.0, 40.0, EDGE / 2  # metres south and north of the map's middle
    ground = np.array([[-65, far], [65, far], [35, -near], [-35, -near]])
    corners = np.array([[0, 0], [256, 0], [256, 256], [0, 256]])
    pixels = np.stack([ground[:, 0] + half, half - ground[:, 1]], axis=1) - 0.5
    onto = cv2.getPerspectiveTransform((corners - 0.5).astype(np.float32), pixels.astype(np.float32))
    photo = cv2.warpPerspective(town, onto, (256, 256), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    return np.asarray(photo, dtype=np.uint8), Shot(0.0, far - 115.0 * 65 / 100)


def test_an_oblique_photo_is_matched_in_its_own_perspective(index: MapIndex, town: RgbImage) -> None:
    """Matching again with the homography found raises the inliers, until nothing is left to gain."""
    photo, middle = oblique(town)
    inliers = []
    for enough in (0, 10_000):
        locator = sure(index, LocateOptions(enough_inliers=enough))
        fix = locator.locate(photo)
        assert fix.evidence is not None and error(fix, middle) < 4.0
        inliers.append(fix.evidence.inliers)
    assert inliers[1] >= inliers[0] > 30


def test_a_known_tilt_gives_the_right_heading_and_width(index: MapIndex, town: RgbImage) -> None:
    photo, middle = oblique(town)
    fix = sure(index).locate(photo, hints=Hints(tilt_deg=60.0, fov_deg=55.0))
    assert fix.heading_deg is not None and math.cos(math.radians(fix.heading_deg)) > 0.999
    assert fix.ground_m == pytest.approx(91.0, rel=0.03) and error(fix, middle) < 2.0


def test_a_known_heading_selects_among_rotated_views(tmp_path: Path, town: RgbImage) -> None:
    options = ViewOptions((120.0,), 0.3, 4)
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "town.tif")], options)
    locator = sure(index)
    for heading, allowed in ((20.0, {0.0}), (350.0, {0.0}), (100.0, {90.0}), (225.0, {180.0, 270.0}), (226.0, {270.0})):
        photo = _embedding(locator, Shot(0.0, 0.0, heading).photo(town))
        hits = locator.rank_views(photo, None, Hints(heading_deg=heading))
        assert {hit.footprint.rotation for hit in hits} == allowed
        assert {hit.footprint.rotation for hit in locator.rank_views(photo, None, Hints())} == {0.0, 90.0, 180.0, 270.0}


@pytest.mark.parametrize(("heading", "behind"), [(0.0, (0.0, -60.0)), (90.0, (-60.0, 0.0)), (225.0, (42.43, 42.43))])
def test_the_drone_is_behind_the_centre_of_the_photo(
    locator: Locator, town: RgbImage, heading: float, behind: tuple[float, float]
) -> None:
    """At an altitude of 60 m and a tilt of 45 degrees it is 60 m behind what it looks at."""
    shot = Shot(30.0, 20.0, heading)
    fix = locator.locate(shot.photo(town), hints=Hints(altitude_m=60.0, tilt_deg=45.0))
    assert fix.drone_latitude is not None and fix.drone_longitude is not None
    camera = Fix(photo="", latitude=fix.drone_latitude, longitude=fix.drone_longitude)
    assert error(camera, Shot(30.0 + behind[0], 20.0 + behind[1])) < 8.0
    assert error(fix, shot) < 4.0, "the fix itself is on the ground"


def test_with_a_known_lens_the_altitude_is_ignored(locator: Locator, town: RgbImage) -> None:
    """With a field of view of 90 degrees the distance is half the ground width; the altitude may be above a hill."""
    shot = Shot(30.0, 20.0, 90.0)
    camera = Hints(altitude_m=500.0, tilt_deg=60.0, fov_deg=90.0)
    for hints in (camera, replace(camera, altitude_m=None)):
        fix = locator.locate(shot.photo(town), hints=hints)
        assert fix.ground_m is not None and fix.drone_latitude is not None and fix.drone_longitude is not None
        drone = Fix(photo="", latitude=fix.drone_latitude, longitude=fix.drone_longitude)
        assert error(drone, Shot(30.0 - fix.ground_m / 4, 20.0)) < 8.0


@pytest.mark.parametrize("tilt", [20.0, 45.0, 70.0])
def test_lens_and_altitude_give_the_same_position_over_flat_ground(tilt: float) -> None:
    camera = Hints(altitude_m=80.0, tilt_deg=tilt, fov_deg=70.0)
    there = {"latitude": 48.0, "longitude": 16.0, "heading": 30.0}
    by_lens = drone_position(**there, ground_m=ground_width(camera), hints=replace(camera, altitude_m=None))
    by_height = drone_position(**there, ground_m=ground_width(camera), hints=replace(camera, fov_deg=None))
    assert by_lens is not None and by_lens == pytest.approx(by_height, abs=1e-9)
    rolled = drone_position(
        **(there | {"heading": there["heading"] + 60.0}), ground_m=None, hints=replace(camera, turn_deg=60.0)
    )
    assert rolled == pytest.approx(by_height, abs=1e-9), "the drone is behind its optical axis, whatever the roll"
    assert drone_position(**there, ground_m=None, hints=camera) == by_height, "without the width the altitude is used"
    assert drone_position(**there, ground_m=None, hints=replace(camera, altitude_m=None)) is None


@pytest.mark.parametrize(
    ("hints", "known"),
    [
        (Hints(altitude_m=60.0, tilt_deg=90.0), True),
        (Hints(fov_deg=60.0, tilt_deg=90.0), True),
        (Hints(fov_deg=60.0), False),
        (Hints(altitude_m=60.0), False),
        (Hints(tilt_deg=45.0), False),
        (Hints(altitude_m=60.0, tilt_deg=10.0), False),  # almost level
    ],
)
def test_the_drone_position_needs_tilt_and_distance(
    locator: Locator, town: RgbImage, hints: Hints, known: bool
) -> None:
    fix = locator.locate(SHOTS[0].photo(town), hints=hints)
    assert (fix.drone_latitude is not None) == known
    if known:
        assert (fix.drone_latitude, fix.drone_longitude) == pytest.approx((fix.latitude, fix.longitude), abs=1e-9)


VOTED = replace(
    SURE,
    weights=(5.0, 0.0, 0.0),
    steps=((0.0, 0.1), (5.0, 0.9)),
    refined=GroupErrors(3.0, 1.0),
)


def test_without_the_map_file_a_photo_is_located_by_the_vote(tmp_path: Path, town: RgbImage) -> None:
    file = write_quilt(tmp_path / "town.tif")
    index = make_index(tmp_path / "i", [file])
    shot = SHOTS[3]
    voted = sure(index, LocateOptions(aligned=0), VOTED).locate(shot.photo(town))
    file.unlink()
    fix = sure(MapIndex(tmp_path / "i"), None, VOTED).locate(shot.photo(town))
    assert replace(fix, seconds=0.0) == replace(voted, seconds=0.0), "as with matching turned off"
    assert fix.found and not fix.refined and fix.heading_deg is None and fix.ground_m is None
    assert error(fix, shot) < 40.0
    assert fix.radius_m == pytest.approx(2.0 * fix.peaks[0].spread_m)
    camera = Hints(altitude_m=60.0, tilt_deg=45.0)
    assert sure(MapIndex(tmp_path / "i"), None, VOTED).locate(shot.photo(town), hints=camera).drone_latitude is None


def test_an_infinite_radius_is_no_fix(index: MapIndex, town: RgbImage) -> None:
    locator = sure(index, None, replace(SURE, refined=GroupErrors(0.0, math.inf)))
    fix = locator.locate(SHOTS[0].photo(town))
    assert not fix.found and fix.radius_m is None and fix.reason


def test_a_match_with_too_few_inliers_is_ignored(index: MapIndex, town: RgbImage) -> None:
    fix = sure(index, LocateOptions(min_inliers=10_000), VOTED).locate(SHOTS[0].photo(town))
    assert fix.found and not fix.refined
    assert fix.evidence is not None and fix.evidence.inliers == 0.0 and not fix.evidence.matched


def test_another_model_than_the_index_has_is_refused(index: MapIndex) -> None:
    with pytest.raises(SkyPartError, match="made with the model colours"):
        Locator(index, ColourEmbedder("other"))


def test_the_calibration_of_the_index_is_used_and_reported(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    assert not Locator(index, ColourEmbedder()).calibrated
    index.manifest = replace(index.manifest, calibration=SURE.to_dict())
    index.manifest.write(index.folder)
    locator = Locator(MapIndex(index.folder), ColourEmbedder())
    assert locator.calibrated and locator.calibration == SURE
    assert locator.locate(np.zeros((9, 9, 3), np.uint8)).calibrated


def test_a_calibration_for_another_version_of_the_matching_is_not_used(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    old = {key: value for key, value in SURE.to_dict().items() if key != "matching"}
    index.manifest = replace(index.manifest, calibration=old)
    index.manifest.write(index.folder)
    locator = Locator(MapIndex(index.folder), ColourEmbedder())
    assert not locator.calibrated and locator.calibration == default_calibration()
    assert "another version of the matching" in locator.outdated


def test_a_model_without_a_calibration_gets_candidates_but_no_fix(index: MapIndex, town: RgbImage) -> None:
    strange = sure(index, None, replace(SURE, model="of another"))
    fix = strange.locate(SHOTS[0].photo(town))
    assert not fix.found and fix.confidence == 0 and "skypart calibrate" in str(fix.reason)
    assert fix.candidates and fix.evidence
    assert sure(index, None, replace(SURE, model=ColourEmbedder().digest)).locate(SHOTS[0].photo(town)).found
    strange.calibrated = True
    assert strange.locate(SHOTS[0].photo(town)).found


def test_a_calibration_for_other_maps_is_not_used(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    for maps, used in ((index.manifest.maps_digest, True), ("others", False)):
        index.manifest = replace(index.manifest, calibration={**SURE.to_dict(), "maps": maps})
        index.manifest.write(index.folder)
        locator = Locator(MapIndex(index.folder), ColourEmbedder())
        assert locator.calibrated == used and bool(locator.outdated) == (not used)


def test_the_reason_names_a_map_that_cannot_be_read(tmp_path: Path, town: RgbImage) -> None:
    file = write_quilt(tmp_path / "town.tif")
    index = make_index(tmp_path / "i", [file])
    never = replace(VOTED, voted=GroupErrors(0.0, math.inf))
    assert "clearly enough" in str(sure(index, LocateOptions(aligned=0), never).locate(SHOTS[3].photo(town)).reason)
    file.unlink()
    fix = sure(MapIndex(tmp_path / "i"), None, never).locate(SHOTS[3].photo(town))
    assert not fix.found and fix.reason == "the map town cannot be read to check the place"


def test_a_small_prior_finds_the_views_around_it(locator: Locator, town: RgbImage) -> None:
    """The centres of views are farther apart than such a radius."""
    for east, north in ((12.0, 7.0), (20.0, 20.0), (-33.0, 41.0)):
        shot = Shot(east, north, 0.0, 100.0)
        prior = Prior(latitude=shot.place[0], longitude=shot.place[1], radius_m=3.0)
        fix = locator.locate(shot.photo(town), prior=prior)
        assert fix.candidates, fix.reason
        assert all(
            distance_m(
                latitude=prior.latitude,
                longitude=prior.longitude,
                to_latitude=each.footprint.latitude,
                to_longitude=each.footprint.longitude,
            )
            < 250
            for each in fix.candidates
        )


def uniform(level: int, deviation: int = 0) -> RgbImage:
    """A grey image whose halves differ from `level` by +-`deviation`: that is its standard deviation."""
    image = np.full((112, 112, 3), level + deviation, np.uint8)
    image[:, :56] = level - deviation
    return image


@pytest.mark.parametrize(
    ("level", "words"), [(39, "almost black"), (40, "of one colour"), (215, "of one colour"), (216, "almost white")]
)
def test_uniform_photos_are_named_by_their_shade(level: int, words: str) -> None:
    assert words in unusable_reason(uniform(level))
    assert words in unusable_reason(uniform(level, 3))
    assert "almost" not in unusable_reason(uniform(level, 4)), "enough contrast"


@pytest.mark.parametrize(("share", "usable"), [(0.1, False), (0.2, True)])
def test_a_photo_needs_some_detail(share: float, usable: bool) -> None:
    """A smooth ramp with a chessboard of +-1 on a part of it: the Laplacian deviates by 8 times the root of that."""
    ramp = np.tile(60 + np.arange(112), (112, 1))
    rows, columns = np.mgrid[0:112, 0:112]
    ramp += np.where(rows < 112 * share, 2 * ((rows + columns) % 2) - 1, 0)
    assert (unusable_reason(np.repeat(ramp[:, :, None], 3, axis=2).astype(np.uint8)) == "") == usable


def test_candidates_do_not_overlap_much() -> None:
    """Two views are distinct if they are more than 0.3 edges of the better one apart."""
    spaced = hits([(0.0, 0.0, 0.9), (29.0, 0.0, 0.8), (31.0, 0.0, 0.7), (31.0, 29.0, 0.6), (31.0, 62.0, 0.5)])
    assert [hit.score for hit in distinct_hits(spaced)] == [0.9, 0.7, 0.5]
    far = hits([(100.0 * i, 0.0, 0.9 - 0.1 * i) for i in range(8)])
    assert distinct_hits(far) == far[:5] and distinct_hits(far, 2) == far[:2]


@pytest.mark.parametrize(
    ("first", "second", "angle"), [(10.0, 30.0, 20.0), (30.0, 10.0, -20.0), (350.0, 10.0, 20.0), (10.0, 350.0, -20.0)]
)
def test_angles_between_compass_directions(first: float, second: float, angle: float) -> None:
    assert angle_between(first, second) == angle


class ScriptedIndex:
    """An index that records what is searched and returns fixed hits."""

    def __init__(self, results: list[Hit], options: ViewOptions) -> None:
        self.results, self.manifest = results, SimpleNamespace(options=options, calibration=None)
        self.asked: list[tuple[int, Circle | None]] = []

    def check_model(self, digest: str) -> None:
        pass

    def search(self, queries: Any, count: int, within: Circle | None) -> list[list[Hit]]:
        self.asked.append((count, within))
        return [self.results]


def test_more_views_are_searched_than_vote_and_the_prior_is_widened_by_their_spacing() -> None:
    index: Any = ScriptedIndex(
        hits([(float(i), 0.0, 0.9 - 0.001 * i) for i in range(100)]), ViewOptions((100.0, 200.0), 0.4)
    )
    locator = Locator(index, ColourEmbedder())
    embedding = np.ones(36, np.float32)
    assert len(locator.rank_views(embedding, None, Hints())) == 48
    prior = Prior(latitude=48.0, longitude=11.0, radius_m=50.0)
    locator.rank_views(embedding, prior, Hints())
    (count, nowhere), (_, within) = index.asked
    assert count == 4 * 48 and nowhere is None and within is not None
    assert within.radius_m == pytest.approx(50.0 + 0.6 * 200.0 / math.sqrt(2))


def test_an_index_without_rotations_ignores_the_heading() -> None:
    found = hits([(0.0, 0.0, 0.9)])
    index: Any = ScriptedIndex(found, ViewOptions((100.0,), 0.4))
    assert Locator(index, ColourEmbedder()).rank_views(np.ones(36, np.float32), None, Hints(heading_deg=180.0)) == found


@pytest.mark.parametrize(("tilt", "known"), [(14.9, False), (15.0, True), (88.9, True)])
def test_the_drone_position_needs_a_minimum_tilt(tilt: float, known: bool) -> None:
    camera = Hints(altitude_m=50.0, tilt_deg=tilt)
    found = drone_position(latitude=48.0, longitude=16.0, heading=0.0, ground_m=None, hints=camera)
    assert (found is not None) == known
    blind = drone_position(latitude=48.0, longitude=16.0, heading=None, ground_m=None, hints=camera)
    assert blind is None, "without a heading only a vertical camera has a known position"
    vertical = replace(camera, tilt_deg=89.0)
    assert drone_position(latitude=48.0, longitude=16.0, heading=None, ground_m=None, hints=vertical) is not None


@pytest.mark.parametrize("shot", SHOTS, ids=str)
def test_the_heading_is_found(index: MapIndex, town: RgbImage, shot: Shot) -> None:
    fix = sure(index).locate(shot.photo(town))
    assert fix.refined and error(fix, shot) < 4.0
    assert fix.heading_deg is not None and abs((fix.heading_deg - shot.heading + 180) % 360 - 180) < 4.0


def test_nothing_is_found_elsewhere(index: MapIndex) -> None:
    locator = sure(index)
    assert not any(locator.locate(shot.photo(quilt(77))).found for shot in SHOTS[:3])


def test_a_photo_of_a_flight_is_matched_around_the_one_before_without_a_search(index: MapIndex, town: RgbImage) -> None:
    locator = sure(index)
    assert isinstance(locator.embedder, ColourEmbedder)
    before, after = Shot(20.0, -40.0, 30.0, 100.0), Shot(28.0, -31.0, 34.0, 103.0)
    first, last = locator.locate_next(before.photo(town), None)
    assert first.found and last is not None
    calls = locator.embedder.calls
    second, _ = locator.locate_next(after.photo(town), last)
    assert second.found and error(second, after) < 4.0 and locator.embedder.calls == calls
    assert second.heading_deg == pytest.approx(34.0, abs=4.0) and not second.candidates and not second.peaks
    assert first.evidence is not None and second.evidence is not None
    assert second.evidence.similarity == first.evidence.similarity, "of the last photo that was searched for"


def test_a_photo_outside_the_area_that_is_searched_is_not_followed(index: MapIndex, town: RgbImage) -> None:
    locator = sure(index)
    photo = SHOTS[0].photo(town)
    _, last = locator.locate_next(photo, None)
    for shot, followed in ((SHOTS[0], True), (SHOTS[5], False)):
        prior = Prior(latitude=shot.place[0], longitude=shot.place[1], radius_m=60.0)
        assert (not locator.locate_next(photo, last, prior=prior)[0].candidates) == followed


def test_a_photo_far_from_the_one_before_is_searched_everywhere(index: MapIndex, town: RgbImage) -> None:
    locator = sure(index)
    _, last = locator.locate_next(SHOTS[0].photo(town), None)
    fix, _ = locator.locate_next(SHOTS[5].photo(town), last)
    assert fix.found and error(fix, SHOTS[5]) < 4.0


def test_the_photo_before_can_be_ignored(index: MapIndex, town: RgbImage) -> None:
    _, last = sure(index).locate_next(SHOTS[0].photo(town), None)
    photo = Shot(28.0, -31.0, 4.0, 100.0).photo(town)
    blind = sure(index, LocateOptions(follow_inliers=0))
    alone, after = (replace(blind.locate_next(photo, each)[0], seconds=0.0) for each in (None, last))
    assert alone == after
