"""Evaluate one row of a comparison: ranks and AP of every query, clean and in weather, kept in one file."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.datasets.records import Dataset, TestSplit
from skypart.errors import SkyPartError
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.evaluation.metrics import average_precision
from skypart.evaluation.protocol import Vectors, embed_dataset, locations, stack
from skypart.evaluation.ranking import rank_positives
from skypart.evaluation.rerank import expand_queries, k_reciprocal_scores
from skypart.experiments.wrappers import MODEL_WRAPPERS
from skypart.images.weather import CONDITIONS, RENDERING

CLEAN = "clean"
Ranks = NDArray[np.int32]
FORMAT = 1


@dataclass(frozen=True, eq=False)
class SplitScores:
    """The queries of one test split. first (q,): 0-based rank of the first positive. ap, ap_standard (q,): 0..1.

    places (q,): location of each query.
    """

    first: Ranks
    ap: NDArray[np.float32]
    ap_standard: NDArray[np.float32]
    places: NDArray[np.str_]

    def metric(self, name: str) -> NDArray[np.float64]:
        """(q,) contribution of each query to a metric in percent: `R@k`, `AP` or `AP standard`."""
        if name == "AP":
            return 100.0 * self.ap.astype(np.float64)
        if name == "AP standard":
            return 100.0 * self.ap_standard.astype(np.float64)
        return 100.0 * (self.first < int(name.removeprefix("R@"))).astype(np.float64)


@dataclass(frozen=True, eq=False)
class RowScores:
    """All queries of one row and seed: condition (`clean`, `paper/fog`, ...) -> split (`D2S 150m`) -> scores."""

    digest: str
    conditions: dict[str, dict[str, SplitScores]]

    def directions(self) -> list[str]:
        """`D2S`, `S2D`."""
        return list(dict.fromkeys(name.split()[0] for name in self.conditions[CLEAN]))

    def headline(self, condition: str, direction: str, metric: str = "R@1") -> float:
        """The metric in percent: of the whole test if there is one, else the mean over altitudes."""
        return float(np.mean([split.metric(metric).mean() for split in self._headline_splits(condition, direction)]))

    def _headline_splits(self, condition: str, direction: str) -> list[SplitScores]:
        """The whole test of a direction if there is one, else the split of each altitude."""
        mine = {name: split for name, split in self.conditions[condition].items() if name.split()[0] == direction}
        return [mine[direction]] if direction in mine else list(mine.values())

    def queries(
        self, condition: str, direction: str, metric: str = "R@1"
    ) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
        """(q,) contribution of each query to a headline metric, and the place of each."""
        chosen = self._headline_splits(condition, direction)
        return np.concatenate([s.metric(metric) for s in chosen]), np.concatenate([s.places for s in chosen])


def _expanded(query: NDArray[np.float32], gallery: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    return expand_queries(query, gallery, min(5, len(gallery))), gallery


def _reranked(query: NDArray[np.float32], gallery: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """Scores as features: the product of (q, g) scores with the identity (g, g) is the scores themselves."""
    count = len(query) + len(gallery)
    scores = k_reciprocal_scores(query, gallery, min(20, count - 1), min(6, count - 1))
    return scores.astype(np.float32), np.eye(len(gallery), dtype=np.float32)


WRAPPERS: dict[str, Callable[..., Any]] = {"query_expansion": _expanded, "k_reciprocal": _reranked}
"""Departures from the single-pass protocol that only need embeddings."""


def measure(
    source: ImageSource, dataset: Dataset, profiles: Sequence[str], wrapper: str = "", seed: int = 0
) -> RowScores:
    """Rank all queries of a data set, clean and in the ten conditions of each weather profile."""
    wrapper = "" if wrapper in MODEL_WRAPPERS else wrapper  # those are around the model already
    if wrapper and wrapper not in WRAPPERS:
        raise SkyPartError(f"unknown wrapper {wrapper!r}; choose one of {', '.join((*WRAPPERS, *MODEL_WRAPPERS))}")
    found = {CLEAN: _rank(dataset, embed_dataset(dataset, source), wrapper)}
    for profile in profiles:
        for condition in CONDITIONS:
            corruption = Corruption(condition, profile, seed)
            found[f"{profile}/{condition}"] = (
                found[CLEAN]
                if condition == "normal"
                else _rank(dataset, embed_dataset(dataset, source, corruption), wrapper)
            )
    return RowScores(source.embedder.digest, found)


def _rank(dataset: Dataset, vectors: Vectors, wrapper: str) -> dict[str, SplitScores]:
    return {split.name: _rank_split(split, vectors, wrapper) for split in dataset.tests}


def _rank_split(split: TestSplit, vectors: Vectors, wrapper: str) -> SplitScores:
    query, gallery = stack(split.query, vectors), stack(split.gallery, vectors)
    if wrapper:
        query, gallery = WRAPPERS[wrapper](query, gallery)
    ranks = rank_positives(query, locations(split.query), gallery, locations(split.gallery))
    return SplitScores(
        ranks.first().astype(np.int32),
        average_precision(ranks, "official").astype(np.float32),
        average_precision(ranks, "standard").astype(np.float32),
        locations(split.query),
    )


def save_scores(path: Path, scores: RowScores, about: dict[str, Any]) -> None:
    """Write scores to an .npz file, atomically, with facts about how they were made."""
    arrays: dict[str, Any] = {
        f"{condition}|{split}|{field}": getattr(each, field)
        for condition, splits in scores.conditions.items()
        for split, each in splits.items()
        for field in ("first", "ap", "ap_standard", "places")
    }
    facts = {"format": FORMAT, "digest": scores.digest, "rendering": RENDERING, **about}
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, about=json.dumps(facts), **arrays)


def load_scores(path: Path) -> tuple[RowScores, dict[str, Any]]:
    """Read what `save_scores` wrote."""
    try:
        with np.load(path, allow_pickle=False) as content:
            about = json.loads(str(content["about"]))
            conditions: dict[str, dict[str, SplitScores]] = {}
            for key in content.files:
                if key.endswith("|first"):
                    condition, split, _ = key.split("|")
                    fields = [content[f"{condition}|{split}|{f}"] for f in ("first", "ap", "ap_standard", "places")]
                    conditions.setdefault(condition, {})[split] = SplitScores(*fields)
    except (OSError, ValueError, KeyError) as error:
        raise SkyPartError(f"{path}: damaged ({error}); remove it and run the same command again") from error
    return RowScores(str(about["digest"]), conditions), about
