"""Locating photos cut out of a map: place, heading and width, what is known beforehand, and when there is no fix."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from rasterio.transform import Affine

from skypart.errors import SkyPartError
from skypart.geo.footprint import Footprint
from skypart.geo.geodesy import distance_m
from skypart.images.decode import RgbImage
from skypart.maps.cut import ViewOptions
from skypart.maps.index import MapIndex
from skypart.position.camera import drone_place, ground_width
from skypart.position.search import LocateOptions, _look, _tilts
from skypart.position.confidence import Calibration, default_calibration
from skypart.position.fix import Fix, Hints, Prior
from skypart.position.locate import Locator
from skypart.position.locate import unusable
from tests.maps.makers import write_raster
from tests.position.stand_in import EDGE, NORTH, SURE, ColourEmbedder, Shot, make_index, quilt, write_quilt


@pytest.fixture(scope="module")
def town() -> RgbImage:
    return quilt(1)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    folder = tmp_path_factory.mktemp("town")
    return make_index(folder / "town.skyindex", [write_quilt(folder / "town.tif")])


def sure(index: MapIndex, options: LocateOptions | None = None, calibration: Calibration = SURE) -> Locator:
    """A locator whose confidence grows with the patches that agree, whatever the default calibration says."""
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
def test_a_photo_is_found_with_its_heading_and_width(locator: Locator, town: RgbImage, shot: Shot) -> None:
    fix = locator.locate(shot.photo(town), name="a.jpg")
    assert fix.found and fix.refined and not fix.reason and fix.photo == "a.jpg"
    assert error(fix, shot) < 4.0
    assert fix.heading_deg is not None and abs((fix.heading_deg - shot.heading + 180) % 360 - 180) < 4.0
    assert fix.ground_m == pytest.approx(shot.width, rel=0.12)
    assert fix.ground_m is not None and fix.radius_m is not None
    scale = 3.6 * fix.ground_m / fix.evidence["inliers"]
    assert fix.radius_m == pytest.approx(SURE.refined * scale) and fix.confidence > 0.5
    assert error(fix, shot) < fix.radius_m and fix.seconds > 0


def test_a_photo_that_is_not_square_is_found_too(locator: Locator, town: RgbImage) -> None:
    """Width counts across the photo: 100 m across and 75 m along."""
    shot = Shot(40.0, 60.0, 30.0, 100.0)
    square = shot.photo(town, 320)
    fix = locator.locate(square[40:280])
    assert error(fix, shot) < 5.0
    assert fix.ground_m == pytest.approx(100.0, rel=0.12)
    assert fix.heading_deg == pytest.approx(30.0, abs=5.0)


def test_candidates_and_peaks_come_best_first_and_apart(locator: Locator, town: RgbImage) -> None:
    fix = locator.locate(SHOTS[1].photo(town))
    scores = [candidate.score for candidate in fix.candidates]
    assert scores == sorted(scores, reverse=True) and 1 <= len(scores) <= 5
    assert {candidate.map_name for candidate in fix.candidates} == {"town"}
    first, second = fix.candidates[0].footprint, fix.candidates[1].footprint
    apart = distance_m(
        latitude=first.latitude,
        longitude=first.longitude,
        to_latitude=second.latitude,
        to_longitude=second.longitude,
    )
    assert apart > 0.3 * first.metres
    assert fix.peaks[0].weight == fix.evidence["agreement"] and sum(peak.weight for peak in fix.peaks) <= 1 + 1e-9


def test_the_same_photo_gets_the_same_fix_whoever_came_before(index: MapIndex, town: RgbImage) -> None:
    alone = [replace(sure(index).locate(shot.photo(town)), seconds=0.0) for shot in SHOTS[:2]]
    one = sure(index)
    cv2.setRNGSeed(1234)
    in_turn = [replace(one.locate(shot.photo(town)), seconds=0.0) for shot in reversed(SHOTS[:2])]
    assert alone == in_turn[::-1]


def test_a_photo_from_elsewhere_gets_no_fix_but_its_evidence(locator: Locator) -> None:
    strange = quilt(77)
    for shot in SHOTS:
        fix = locator.locate(shot.photo(strange))
        assert not fix.found and fix.latitude is None and fix.radius_m is None and fix.heading_deg is None
        assert "resembles" in fix.reason and fix.candidates and fix.confidence < SURE.threshold
        assert set(fix.evidence) >= {"similarity", "agreement", "inliers", "inlier_share", "scale_m", "latitude"}


def photo_of(kind: str, town: RgbImage) -> RgbImage:
    dice = np.random.default_rng(0)
    rows = np.linspace(0, 1, 300)[:, None, None]
    sky = (np.array([90, 140, 230]) * (1 - rows) + np.array([210, 215, 220]) * rows).repeat(400, axis=1)
    made = {
        "black": np.zeros((300, 400, 3)),
        "night": dice.normal(3, 3, (300, 400, 3)),
        "white": np.full((300, 400, 3), 255),
        "overexposed": dice.normal(252, 3, (300, 400, 3)),
        "grey": dice.normal(120, 3, (300, 400, 3)),
        "sky": sky + dice.normal(0, 2, (300, 400, 3)),
        "clouds": sky + 60 * cv2.GaussianBlur(dice.normal(0, 30, (300, 400, 1)), (0, 0), 25)[..., None],
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
        ("sky", "blurred or shows sky only"),
        ("clouds", "blurred or shows sky only"),
        ("blurred", "blurred or shows sky only"),
    ],
)
def test_a_photo_in_which_nothing_can_be_seen_says_so(locator: Locator, town: RgbImage, kind: str, words: str) -> None:
    embedder = locator.embedder
    assert isinstance(embedder, ColourEmbedder)
    fix = locator.locate(photo_of(kind, town), name="p")
    assert not fix.found and words in fix.reason and fix.photo == "p"
    assert fix.evidence == {} and fix.candidates == () and fix.confidence == 0.0
    assert embedder.calls == 0, "it was embedded for nothing"


def test_a_dim_or_hazy_or_slightly_blurred_photo_is_still_looked_at() -> None:
    roofs = np.random.default_rng(0).integers(40, 200, (40, 40, 3)).astype(np.float32)
    photo = cv2.resize(roofs, (400, 400), interpolation=cv2.INTER_NEAREST)
    for dimmed in (photo, photo * 0.2, photo * 0.3 + 160, cv2.GaussianBlur(photo, (0, 0), 6)):
        assert unusable(dimmed.astype(np.uint8)) == ""


@pytest.mark.parametrize("shape", [(1, 1), (2, 900), (900, 2), (5, 5)])
def test_a_photo_of_any_shape_is_answered(locator: Locator, shape: tuple[int, int]) -> None:
    photo = np.random.default_rng(0).integers(0, 255, (*shape, 3), dtype=np.uint8)
    fix = locator.locate(photo)
    assert fix.found or fix.reason


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    """The same 260 x 260 m of ground twice, side by side."""
    folder = tmp_path_factory.mktemp("twins")
    tile = quilt(5, 260)
    affine = Affine(1.0, 0.0, 500_000.0 - 260, 0.0, -1.0, NORTH + 130)
    both = np.concatenate([tile, tile], axis=1).transpose(2, 0, 1)
    return make_index(folder / "i", [write_raster(folder / "twins.tif", both, "EPSG:32632", affine)])


def test_a_prior_decides_between_twins(twins: MapIndex) -> None:
    photo = Shot(0.0, 10.0, 40.0, 90.0).photo(quilt(5, 260))
    locator = sure(twins)
    free = locator.locate(photo)
    assert len(free.peaks) >= 2 and free.peaks[0].weight < 0.5, "without a prior both are as likely"
    for east in (-130.0, 130.0):
        latitude, longitude = Shot(east, 0.0).place
        prior = Prior(latitude=latitude, longitude=longitude, radius_m=90.0)
        fix = locator.locate(photo, prior=prior)
        assert error(fix, Shot(east, 10.0)) < 4.0
        assert fix.evidence["agreement"] > 0.5
        for candidate in fix.candidates:
            off = distance_m(
                latitude=latitude,
                longitude=longitude,
                to_latitude=candidate.footprint.latitude,
                to_longitude=candidate.footprint.longitude,
            )
            assert off <= 90.0 + 0.71 * max(twins.manifest.options.sizes_m)


def test_a_prior_outside_the_map_says_so(locator: Locator, town: RgbImage) -> None:
    latitude, longitude = Shot(5000.0, 0.0).place
    fix = locator.locate(SHOTS[0].photo(town), prior=Prior(latitude=latitude, longitude=longitude, radius_m=500.0))
    assert not fix.found and fix.reason == "the map has no view within the given radius" and fix.seconds > 0


def test_a_known_camera_leaves_out_views_it_cannot_see(tmp_path: Path, town: RgbImage) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "town.tif")], ViewOptions((100.0, 400.0), 0.5))
    locator = sure(index)
    photo = SHOTS[0].photo(town)

    def sizes(hints: Hints) -> set[float]:
        return {hit.footprint.metres for hit in locator._rank(_tokens(locator, photo), None, hints)}

    assert sizes(Hints()) == {100.0, 400.0}
    straight = {"tilt_deg": 90.0, "fov_deg": 2 * math.degrees(math.atan(0.5))}  # as wide as high
    assert sizes(Hints(altitude_m=90.0, **straight)) == {100.0}
    assert sizes(Hints(altitude_m=350.0, **straight)) == {400.0}
    assert sizes(Hints(altitude_m=9000.0, **straight)) == {100.0, 400.0}, "where none fits, all are kept"
    assert sizes(Hints(altitude_m=90.0)) == {100.0, 400.0}, "height alone says nothing"


def _tokens(locator: Locator, photo: RgbImage) -> Any:
    return locator.tokens_of.photo(photo)[0]


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


def test_no_other_place_is_looked_at_where_one_is_clear(index: MapIndex, town: RgbImage) -> None:
    calls = {}
    for enough in (0.2, 2.0):
        locator = Locator(index, ColourEmbedder(), LocateOptions(enough=enough, laid=0))
        fix = locator.locate(SHOTS[2].photo(town), hints=Hints(heading_deg=SHOTS[2].heading))
        assert isinstance(locator.embedder, ColourEmbedder)
        calls[enough] = locator.embedder.calls
    assert calls[2.0] - calls[0.2] == min(LocateOptions().refine_views, len(fix.peaks)) - 1 > 0


def test_a_known_heading_saves_the_other_directions(index: MapIndex, town: RgbImage) -> None:
    shot = SHOTS[2]
    calls = {}
    for heading in (None, shot.heading):
        locator = sure(index)
        fix = locator.locate(shot.photo(town), hints=Hints(heading_deg=heading))
        assert error(fix, shot) < 4.0
        assert isinstance(locator.embedder, ColourEmbedder)
        calls[heading] = locator.embedder.calls
    places = 1  # the first is so clear that no other is looked at
    blank = 3  # pictures that show what patches say of their position
    laid = LocateOptions().laid
    assert calls == {None: blank + 1 + 8 * places + laid, shot.heading: blank + 1 + places + laid}


def oblique(town: RgbImage) -> tuple[RgbImage, Shot]:
    """A photo as a camera of 55 degrees takes it 60 below the horizon, up is north: a trapezium of ground, 70 m wide at
    its near edge and 130 m at its far one, and where its middle, the crossing of the diagonals, lies."""
    near, far, half = 75.0, 40.0, EDGE / 2  # metres south and north of the map's middle
    ground = np.array([[-65, far], [65, far], [35, -near], [-35, -near]])
    corners = np.array([[0, 0], [256, 0], [256, 256], [0, 256]])
    pixels = np.stack([ground[:, 0] + half, half - ground[:, 1]], axis=1) - 0.5
    onto = cv2.getPerspectiveTransform((corners - 0.5).astype(np.float32), pixels.astype(np.float32))
    photo = cv2.warpPerspective(town, onto, (256, 256), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    return np.asarray(photo, dtype=np.uint8), Shot(0.0, far - 115.0 * 65 / 100)


def test_a_map_laid_into_the_photos_perspective_agrees_with_more_of_it(index: MapIndex, town: RgbImage) -> None:
    photo, middle = oblique(town)
    fixes = []
    for laid in (0, 2):
        locator = Locator(index, ColourEmbedder(), LocateOptions(laid=laid))
        locator.calibration = SURE
        fixes.append(locator.locate(photo))
    above, laid_out = fixes
    assert laid_out.evidence["inliers"] > 1.5 * above.evidence["inliers"]
    assert error(laid_out, middle) < 2.0


def test_seen_as_it_was_taken_more_of_a_photo_agrees_at_the_first_look(index: MapIndex, town: RgbImage) -> None:
    photo, middle = oblique(town)
    locator = sure(index)
    latitude, longitude = middle.place
    tokens = locator.tokens_of.photo(photo)[1]
    place = Footprint(latitude=latitude, longitude=longitude, metres=1.2 * 91.0)
    found = {tilt: locator.closer._match(tokens, [_look(place, tilt, tokens.shape, 55.0)]) for tilt in (90.0, 60.0)}
    above, tilted = found[90.0], found[60.0]
    assert above is not None and tilted is not None and tilted.fit.inliers > 2 * above.fit.inliers
    assert math.cos(math.radians(tilted.heading_deg)) > 0.999
    assert tilted.ground_m == pytest.approx(91.0, rel=0.03)
    off = distance_m(
        latitude=latitude, longitude=longitude, to_latitude=[tilted.latitude], to_longitude=[tilted.longitude]
    )
    assert float(off[0]) < 2.0


@pytest.mark.parametrize(
    ("tilt", "looked"), [(None, [90.0]), (88.0, [90.0]), (50.0, [50.0, 90.0]), (5.0, [20.0, 90.0])]
)
def test_the_map_is_looked_at_as_the_photo_was_taken_first(tilt: float | None, looked: list[float]) -> None:
    assert _tilts(Hints(tilt_deg=tilt)) == looked


def test_a_known_heading_chooses_among_turned_views(tmp_path: Path, town: RgbImage) -> None:
    options = ViewOptions((120.0,), 0.3, 4)
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "town.tif")], options)
    locator = sure(index)
    for heading, allowed in ((20.0, {0.0}), (350.0, {0.0}), (100.0, {90.0}), (225.0, {180.0, 270.0})):
        photo = _tokens(locator, Shot(0.0, 0.0, heading).photo(town))
        hits = locator._rank(photo, None, Hints(heading_deg=heading))
        assert {hit.footprint.rotation for hit in hits} == allowed
        assert {hit.footprint.rotation for hit in locator._rank(photo, None, Hints())} == {0.0, 90.0, 180.0, 270.0}


@pytest.mark.parametrize(("heading", "behind"), [(0.0, (0.0, -60.0)), (90.0, (-60.0, 0.0)), (225.0, (42.43, 42.43))])
def test_the_drone_is_behind_the_middle_of_the_photo(
    locator: Locator, town: RgbImage, heading: float, behind: tuple[float, float]
) -> None:
    """60 m up and tilted by 45 degrees it stands 60 m from what it looks at: south of it when it looks north."""
    shot = Shot(30.0, 20.0, heading)
    fix = locator.locate(shot.photo(town), hints=Hints(altitude_m=60.0, tilt_deg=45.0))
    assert fix.drone_latitude is not None and fix.drone_longitude is not None
    camera = Fix(photo="", latitude=fix.drone_latitude, longitude=fix.drone_longitude)
    assert error(camera, Shot(30.0 + behind[0], 20.0 + behind[1])) < 8.0
    assert error(fix, shot) < 4.0, "the fix itself is of the ground"


def test_a_known_lens_places_the_drone_whatever_its_height(locator: Locator, town: RgbImage) -> None:
    """With 90 degrees across it is half the width of the ground away; the height may be that above a hill."""
    shot = Shot(30.0, 20.0, 90.0)
    camera = Hints(altitude_m=500.0, tilt_deg=60.0, fov_deg=90.0)
    for hints in (camera, replace(camera, altitude_m=None)):
        fix = locator.locate(shot.photo(town), hints=hints)
        assert fix.ground_m is not None and fix.drone_latitude is not None and fix.drone_longitude is not None
        drone = Fix(photo="", latitude=fix.drone_latitude, longitude=fix.drone_longitude)
        assert error(drone, Shot(30.0 - fix.ground_m / 4, 20.0)) < 8.0


@pytest.mark.parametrize("tilt", [20.0, 45.0, 70.0])
def test_lens_and_height_place_the_drone_alike_over_flat_ground(tilt: float) -> None:
    camera = Hints(altitude_m=80.0, tilt_deg=tilt, fov_deg=70.0)
    there = {"latitude": 48.0, "longitude": 16.0, "heading": 30.0}
    by_lens = drone_place(**there, ground_m=ground_width(camera), hints=replace(camera, altitude_m=None))
    by_height = drone_place(**there, ground_m=ground_width(camera), hints=replace(camera, fov_deg=None))
    assert by_lens is not None and by_lens == pytest.approx(by_height, abs=1e-9)
    rolled = drone_place(
        **(there | {"heading": there["heading"] + 60.0}), ground_m=None, hints=replace(camera, turn_deg=60.0)
    )
    assert rolled == pytest.approx(by_height, abs=1e-9), "the drone hangs behind its optical axis, however it is rolled"
    assert drone_place(**there, ground_m=None, hints=camera) == by_height, "without the width the height counts"
    assert drone_place(**there, ground_m=None, hints=replace(camera, altitude_m=None)) is None


@pytest.mark.parametrize(
    ("hints", "known"),
    [
        (Hints(altitude_m=60.0, tilt_deg=90.0), True),
        (Hints(fov_deg=60.0, tilt_deg=90.0), True),
        (Hints(fov_deg=60.0), False),
        (Hints(altitude_m=60.0), False),
        (Hints(tilt_deg=45.0), False),
        (Hints(altitude_m=60.0, tilt_deg=10.0), False),  # almost level: the place it looks at says little
    ],
)
def test_the_drone_is_placed_only_where_its_pose_is_known(
    locator: Locator, town: RgbImage, hints: Hints, known: bool
) -> None:
    fix = locator.locate(SHOTS[0].photo(town), hints=hints)
    assert (fix.drone_latitude is not None) == known
    if known:
        assert (fix.drone_latitude, fix.drone_longitude) == pytest.approx((fix.latitude, fix.longitude), abs=1e-9)


VOTED = Calibration((5.0, 0.0, 0.0, 0.0, 0.0), 0.0, ((0.0, 0.1), (5.0, 0.9)), 0.5, 3.0, 2.0, 100, "by hand")


def test_without_the_map_a_photo_is_located_by_the_vote(tmp_path: Path, town: RgbImage) -> None:
    file = write_quilt(tmp_path / "town.tif")
    index = make_index(tmp_path / "i", [file])
    shot = SHOTS[3]
    refused = sure(index, LocateOptions(turns=0), VOTED).locate(shot.photo(town))
    file.unlink()
    fix = sure(MapIndex(tmp_path / "i"), None, VOTED).locate(shot.photo(town))
    assert replace(fix, seconds=0.0) == replace(refused, seconds=0.0), "as if refinement were switched off"
    assert fix.found and not fix.refined and fix.heading_deg is None and fix.ground_m is None
    assert error(fix, shot) < 40.0
    assert fix.radius_m == pytest.approx(2.0 * fix.peaks[0].spread_m)
    camera = Hints(altitude_m=60.0, tilt_deg=45.0)
    assert sure(MapIndex(tmp_path / "i"), None, VOTED).locate(shot.photo(town), hints=camera).drone_latitude is None


def test_an_unlimited_radius_is_no_fix(index: MapIndex, town: RgbImage) -> None:
    locator = sure(index, None, replace(SURE, refined=math.inf))
    fix = locator.locate(SHOTS[0].photo(town))
    assert not fix.found and fix.radius_m is None and fix.reason


def test_few_agreeing_patches_are_not_believed(index: MapIndex, town: RgbImage) -> None:
    fix = sure(index, LocateOptions(least=2.0), VOTED).locate(SHOTS[0].photo(town))
    assert fix.found and not fix.refined and fix.evidence["inliers"] == 0.0


def test_the_wrong_model_is_refused(index: MapIndex) -> None:
    with pytest.raises(SkyPartError, match="made with the model colours"):
        Locator(index, ColourEmbedder("other"))


def test_the_calibration_of_the_index_is_taken_and_said(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    assert not Locator(index, ColourEmbedder()).calibrated
    index.manifest = replace(index.manifest, calibration=SURE.to_dict())
    index.manifest.write(index.folder)
    locator = Locator(MapIndex(index.folder), ColourEmbedder())
    assert locator.calibrated and locator.calibration == SURE
    assert locator.locate(np.zeros((9, 9, 3), np.uint8)).calibrated


def test_a_calibration_of_another_way_of_matching_is_not_taken(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    old = {key: value for key, value in SURE.to_dict().items() if key != "matching"}
    index.manifest = replace(index.manifest, calibration=old)
    index.manifest.write(index.folder)
    locator = Locator(MapIndex(index.folder), ColourEmbedder())
    assert not locator.calibrated and locator.calibration == default_calibration()
    assert "matched in another way" in locator.outdated


def test_a_model_that_nothing_was_fitted_for_gets_no_fix_but_candidates(index: MapIndex, town: RgbImage) -> None:
    strange = sure(index, None, replace(SURE, model="of another"))
    fix = strange.locate(SHOTS[0].photo(town))
    assert not fix.found and fix.confidence == 0 and "skypart calibrate" in str(fix.reason)
    assert fix.candidates and fix.evidence
    assert sure(index, None, replace(SURE, model=ColourEmbedder().digest)).locate(SHOTS[0].photo(town)).found
    strange.calibrated = True
    assert strange.locate(SHOTS[0].photo(town)).found


def test_a_calibration_of_other_maps_is_not_taken(tmp_path: Path) -> None:
    index = make_index(tmp_path / "i", [write_quilt(tmp_path / "t.tif", edge=EDGE // 2)])
    for maps, taken in ((index.manifest.maps_digest, True), ("others", False)):
        index.manifest = replace(index.manifest, calibration={**SURE.to_dict(), "maps": maps})
        index.manifest.write(index.folder)
        locator = Locator(MapIndex(index.folder), ColourEmbedder())
        assert locator.calibrated == taken and bool(locator.outdated) == (not taken)


def test_a_photo_that_cannot_be_checked_says_why_it_has_no_fix(tmp_path: Path, town: RgbImage) -> None:
    file = write_quilt(tmp_path / "town.tif")
    index = make_index(tmp_path / "i", [file])
    never = replace(VOTED, voted=math.inf)
    assert "clearly enough" in str(sure(index, LocateOptions(turns=0), never).locate(SHOTS[3].photo(town)).reason)
    file.unlink()
    fix = sure(MapIndex(tmp_path / "i"), None, never).locate(SHOTS[3].photo(town))
    assert not fix.found and fix.reason == "the map town cannot be read to check the place"


def test_a_small_circle_finds_the_views_around_it(locator: Locator, town: RgbImage) -> None:
    """Centres of views lie further apart than such a radius: the place is between them."""
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
