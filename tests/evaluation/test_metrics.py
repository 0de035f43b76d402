"""Retrieval metrics against a plain loop, and by hand where conventions differ."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skypart.errors import SkyPartError
from skypart.evaluation import rank_positives, retrieval_metrics, scores, top_matches
from skypart.evaluation.metrics import ApMode, top1_rank
from skypart.evaluation.scores import GalleryMode
from tests.evaluation.plain_loop import plain_metrics

AP: Sequence[ApMode] = ("official", "standard")
MODES: Sequence[GalleryMode] = ("full", "masked")


def unit(rng: np.random.Generator, n: int, d: int = 16) -> np.ndarray:
    values: np.ndarray = rng.normal(size=(n, d))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values


def agree(query: np.ndarray, query_ids: Sequence[int], gallery: np.ndarray, gallery_ids: Sequence[int]) -> None:
    for ap in AP:
        for mode in MODES:
            ours = retrieval_metrics(query, query_ids, gallery, gallery_ids, ap=ap, gallery_mode=mode)
            plain = plain_metrics(query, query_ids, gallery, gallery_ids, ap, mode == "masked")
            assert ours == pytest.approx(plain, abs=1e-9)
            assert list(ours) == ["R@1", "R@5", "R@10", "R@top1", "AP"]


@pytest.mark.parametrize("positives", [1, 3, 8, 9, 30])
def test_one_and_many_positives(positives: int) -> None:
    rng = np.random.default_rng(positives)
    gallery_ids = np.repeat(np.arange(9), positives)
    rng.shuffle(gallery_ids)
    agree(unit(rng, 20), rng.integers(0, 7, 20).tolist(), unit(rng, len(gallery_ids)), gallery_ids.tolist())


def test_queries_without_positive_stay_in_the_denominator() -> None:
    rng = np.random.default_rng(0)
    query, gallery = unit(rng, 4), unit(rng, 6)
    agree(query, [0, 7, 7, 1], gallery, [0, 0, 1, 1, 2, 3])
    assert retrieval_metrics(query, [9, 9, 9, 9], gallery, range(6))["AP"] == 0.0
    perfect = retrieval_metrics(gallery, [0, 1, 2, 9, 9, 9], gallery, range(6))
    assert perfect["R@1"] == pytest.approx(50.0)
    assert perfect["AP"] == pytest.approx(50.0)


def test_junk_is_removed_before_ranking() -> None:
    rng = np.random.default_rng(1)
    query = unit(rng, 3)
    gallery = np.concatenate([query, unit(rng, 5)])
    agree(query, [0, 1, 2], gallery, [-1, -1, -1, 0, 1, 2, -1, 3])
    # Equal to the best possible match, but junk: what comes next is ranked first.
    assert retrieval_metrics(query[:1], [5], np.concatenate([query[:1], unit(rng, 1)]), [-1, 5])["R@1"] == 100.0


def test_masked_gallery_uses_the_unmasked_size_for_top1() -> None:
    rng = np.random.default_rng(2)
    query = unit(rng, 40)
    gallery = unit(rng, 400)
    agree(query, list(range(40)), gallery, list(range(400)))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_ties_follow_gallery_order(data: st.DataObject) -> None:
    """Small integers give many exact ties, with any mix of positives, junk and missing ids."""
    q = data.draw(st.integers(1, 5))
    g = data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    query = rng.integers(-1, 2, (q, 3)).astype(np.float64)
    gallery = rng.integers(-1, 2, (g, 3)).astype(np.float64)
    agree(query, rng.integers(0, 4, q).tolist(), gallery, rng.integers(-1, 3, g).tolist())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_of_an_image_tie_exactly(dtype: type) -> None:
    """Equal gallery images must tie at any position, for any summation order of BLAS."""
    rng = np.random.default_rng(3)
    base: np.ndarray = unit(rng, 7, 67).astype(dtype)
    gallery = np.concatenate([base, unit(rng, 90, 67).astype(dtype), base, base])
    ids = [*range(100, 107), *range(200, 290), *range(7), *range(7)]
    expected = {
        "R@1": 0.0,
        "R@5": 100.0,
        "R@10": 100.0,
        "R@top1": 100.0,
        "AP": 100 * ((0 + 1 / 2) / 2 + (1 / 2 + 2 / 3) / 2) / 2,
    }
    assert retrieval_metrics(base, range(7), gallery, ids) == pytest.approx(expected, abs=1e-9)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    query, gallery = unit(rng, 31), unit(rng, 60)
    query_ids, gallery_ids = rng.integers(0, 5, 31), rng.integers(-1, 5, 60)
    whole = retrieval_metrics(query, query_ids, gallery, gallery_ids)
    order, score = top_matches(query, gallery, 5)
    monkeypatch.setattr(scores, "SCORE_BYTES", 60 * 8 * 4)
    assert retrieval_metrics(query, query_ids, gallery, gallery_ids) == pytest.approx(whole, abs=1e-9)
    again = top_matches(query, gallery, 5)
    assert np.array_equal(order, again[0])
    assert np.allclose(score, again[1])


def test_tensors_names_and_half_precision() -> None:
    rng = np.random.default_rng(5)
    query, gallery = unit(rng, 6).astype(np.float32), unit(rng, 9).astype(np.float32)
    plain = retrieval_metrics(query, [0, 1, 2, 3, 4, 5], gallery, range(9))
    tensor = torch.from_numpy(query).requires_grad_()
    assert retrieval_metrics(tensor, torch.arange(6), torch.from_numpy(gallery), torch.arange(9)) == plain
    names = [f"{i:04d}" for i in range(9)]
    assert retrieval_metrics(query, names[:6], gallery, names) == plain
    assert retrieval_metrics(query.astype(np.float16), range(6), gallery.astype(np.float16), range(9))["R@10"] == 100.0


@pytest.mark.parametrize(("gallery", "rank"), [(951, 11), (200, 3), (18_198, 183), (51_355, 515)])
def test_top1_rank_of_the_benchmarks(gallery: int, rank: int) -> None:
    assert top1_rank(gallery) == rank


@pytest.mark.parametrize(("k", "g"), [(1, 50), (3, 50), (10, 50), (50, 50), (99, 50)])
def test_top_matches_equal_a_stable_sort(k: int, g: int) -> None:
    rng = np.random.default_rng(6)
    query, gallery = rng.integers(-1, 2, (8, 4)).astype(float), rng.integers(-1, 2, (g, 4)).astype(float)
    ids = rng.integers(-1, 3, g)
    best, score = top_matches(query, gallery, k, ids)
    for row in range(8):
        values = np.where(ids == -1, -np.inf, gallery @ query[row])
        expected = np.argsort(-values, kind="stable")[: min(k, int((ids != -1).sum()))]
        assert np.array_equal(best[row], expected)
        assert np.array_equal(score[row], values[expected])


def test_invalid_input_raises() -> None:
    rng = np.random.default_rng(7)
    query, gallery = unit(rng, 2), unit(rng, 3)
    with pytest.raises(SkyPartError, match="gallery is empty"):
        retrieval_metrics(query, [0, 1], gallery[:0], [])
    with pytest.raises(SkyPartError, match="16 dimensions"):
        retrieval_metrics(query, [0, 1], gallery[:, :4], [0, 1, 2])
    with pytest.raises(SkyPartError, match="ids of shape"):
        retrieval_metrics(query, [0], gallery, [0, 1, 2])
    with pytest.raises(SkyPartError, match="both be numbers"):
        retrieval_metrics(query, [0, 1], gallery, ["a", "b", "c"])
    with pytest.raises(SkyPartError, match="NaN"):
        retrieval_metrics(query * np.nan, [0, 1], gallery, [0, 1, 2])
    with pytest.raises(SkyPartError, match="unknown AP"):
        retrieval_metrics(query, [0, 1], gallery, [0, 1, 2], ap="voc")  # type: ignore[arg-type]
    with pytest.raises(SkyPartError, match="unknown gallery mode"):
        retrieval_metrics(query, [0, 1], gallery, [0, 1, 2], gallery_mode="half")  # type: ignore[arg-type]


def metrics_at(ranks: Sequence[int], gallery: int, ap: ApMode = "official") -> dict[str, float]:
    """Metrics of one query whose positives have exactly these 0-based `ranks` in a gallery of this size."""
    ids = np.zeros(gallery, dtype=int)
    ids[list(ranks)] = 1
    descending = np.arange(gallery, 0, -1, dtype=float)[:, None]
    return retrieval_metrics([[1.0]], [1], descending, ids, ap=ap)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_counts_the_kth_rank_and_not_the_next(k: int) -> None:
    assert metrics_at([k - 1], 400)[f"R@{k}"] == 100.0
    assert metrics_at([k], 400)[f"R@{k}"] == 0.0


@pytest.mark.parametrize(("gallery", "last"), [(100, 2), (149, 2), (150, 3), (250, 3), (251, 4), (50, 1), (51, 2)])
def test_recall_at_one_percent_rounds_half_to_even_and_adds_one(gallery: int, last: int) -> None:
    assert metrics_at([last - 1], gallery)["R@top1"] == 100.0
    assert metrics_at([last], gallery)["R@top1"] == 0.0


@pytest.mark.parametrize(
    ("ranks", "official", "standard"),
    [
        ([0], 1.0, 1.0),
        ([1], (0 + 1 / 2) / 2, 1 / 2),
        ([0, 1], 1.0, 1.0),
        ([0, 2], (1 + (1 / 2 + 2 / 3) / 2) / 2, (1 + 2 / 3) / 2),
        ([1, 3], ((0 + 1 / 2) / 2 + (1 / 3 + 2 / 4) / 2) / 2, (1 / 2 + 2 / 4) / 2),
    ],
)
def test_average_precision_by_hand(ranks: list[int], official: float, standard: float) -> None:
    assert metrics_at(ranks, 20)["AP"] == pytest.approx(100 * official)
    assert metrics_at(ranks, 20, "standard")["AP"] == pytest.approx(100 * standard)


def test_a_tie_counts_against_a_positive_only_if_the_other_image_is_first() -> None:
    same = np.ones((3, 1))
    assert [retrieval_metrics([[1.0]], [1], same, ids)["R@1"] for ids in ([1, 0, 0], [0, 1, 0])] == [100.0, 0.0]
    assert retrieval_metrics([[1.0]], [1], same, [0, 0, 1], ap="standard")["AP"] == pytest.approx(100 / 3)
    assert retrieval_metrics([[1.0]], [1], same, [-1, -1, 1])["R@1"] == 100.0  # junk does not tie


def test_many_tied_positives_take_their_gallery_places() -> None:
    """More positives than are ranked by counting; all scores are equal."""
    ids = [0, *[1] * 12, 0]
    ranks = rank_positives([[1.0]], [1], np.ones((14, 1)), ids)
    assert ranks.ranks.tolist() == list(range(1, 13))
    assert ranks.first().tolist() == [1]


def test_junk_counts_for_the_size_of_the_gallery_only() -> None:
    """99 junk images before one positive and a wrong one: R@top1 sees 200 images, the ranking 101."""
    ids = np.array([-1] * 99 + [0, 0, 1] + [0] * 98)
    descending = np.arange(200, 0, -1, dtype=float)[:, None]
    found = retrieval_metrics([[1.0]], [1], descending, ids)
    assert found["R@1"] == 0.0 and found["R@top1"] == 100.0  # rank 3 of round(2.0) + 1
    masked = retrieval_metrics([[1.0]], [1], descending, ids, gallery_mode="masked")
    assert masked["R@1"] == 100.0


def test_string_junk_and_empty_positives() -> None:
    ranks = rank_positives(np.eye(2), ["a", "b"], np.eye(2)[[0, 0, 1]], ["-1", "a", "c"])
    assert ranks.ranks.tolist() == [0] and ranks.query.tolist() == [0]
    assert (ranks.queries, ranks.gallery) == (2, 3)
    assert ranks.first().tolist() == [0, 3]  # no positive: behind the whole gallery


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4)])
def test_features_must_be_two_dimensional(shape: tuple[int, ...]) -> None:
    with pytest.raises(SkyPartError, match=r"query features must be \(images, dimensions\)"):
        retrieval_metrics(np.ones(shape), [0, 1, 2], np.ones((2, 3)), [0, 1])


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_infinite_features_that_cancel_in_the_sum_are_found() -> None:
    gallery = np.ones((2, 2))
    gallery[0] = np.inf, -np.inf
    with pytest.raises(SkyPartError, match="gallery features contain NaN"):
        retrieval_metrics(np.ones((1, 2)), [0], gallery, [0, 1])
    large = np.full((2, 2), 1e308)  # finite, although their sum is not
    assert retrieval_metrics(np.array([[1e-308, 0.0]]), [0], large, [0, 1])["R@1"] == 100.0


def test_images_with_equal_sums_are_not_copies() -> None:
    gallery = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    best, score = top_matches([[1.0, 0.0]], gallery, 3)
    assert best.tolist() == [[1, 2, 0]] and score.tolist() == [[1.0, 0.5, 0.0]]


def test_double_precision_is_kept() -> None:
    """Scores that differ by less than float32 resolves."""
    gallery = np.array([[1.0], [1.0 + 1e-12]])
    assert retrieval_metrics([[1.0]], [1], gallery, [0, 1])["R@1"] == 100.0
    assert retrieval_metrics(np.array([[1.0]], dtype=np.float32), [1], gallery, [0, 1])["R@1"] == 100.0


def test_every_copy_points_to_the_first() -> None:
    copies, originals = scores._duplicates(np.array([[2.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [2.0, 0.0]]))
    assert copies.tolist() == [2, 3, 4] and originals.tolist() == [0, 1, 0]
    assert len(scores._duplicates(np.array([[2.0, 0.0], [0.0, 2.0]]))[0]) == 0


def test_ids_may_be_objects_or_whole_floats() -> None:
    names = np.array(["a", "b"], dtype=object)
    assert retrieval_metrics(np.eye(2), names, np.eye(2), names)["R@1"] == 100.0
    assert retrieval_metrics(np.eye(2), [1.0, 2.0], np.eye(2), [1, 2])["R@1"] == 100.0
