"""Evaluate one row of a comparison: ranks and AP of every query, clean and in weather, kept in one file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.atomic import atomic_path
from skypart.datasets.records import Dataset, TestSplit
from skypart.errors import SkyPartError
from skypart.evaluation.distance import sdm_of_queries
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.evaluation.metrics import average_precision, top1_rank
from skypart.evaluation.protocol import embed_dataset, locations, positions, stack
from skypart.evaluation.ranking import rank_positives, top_matches
from skypart.experiments.wrappers import EMBEDDING_WRAPPERS, TENT, WRAPPER_NAMES, require_torch
from skypart.images.weather import CONDITIONS
from skypart.model.tent import Tent

CLEAN = "clean"
Ranks = NDArray[np.int32]
FORMAT = 2
METRICS = ("R@1", "R@5", "R@10", "R@top1", "AP", "AP standard")
SDM_KS = (1, 3, 5)
"""The depths of SDM@K in the paper's DenseUAV table."""
_FIELDS = ("first", "ap", "ap_standard", "places", "gallery", "sdm")


@dataclass(frozen=True, eq=False)
class SplitScores:
    """The queries of one test split. first (q,): 0-based rank of the first positive. ap, ap_standard (q,): 0..1.

    places (q,): location of each query. gallery (): number of gallery images. sdm (q, len(SDM_KS)): SDM@K in 0..1;
    (q, 0) where positions are unknown or the gallery is smaller.
    """

    first: Ranks
    ap: NDArray[np.float32]
    ap_standard: NDArray[np.float32]
    places: NDArray[np.str_]
    gallery: NDArray[np.int64]
    sdm: NDArray[np.float32]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names that `metric` knows."""
        return (*METRICS, *(f"SDM@{k}" for k in SDM_KS[: self.sdm.shape[1]]))

    def metric(self, name: str) -> NDArray[np.float64]:
        """(q,) contribution of each query to a metric in percent: `R@k`, `R@top1`, `AP`, `AP standard` or `SDM@k`."""
        if name == "AP":
            return 100.0 * self.ap.astype(np.float64)
        if name == "AP standard":
            return 100.0 * self.ap_standard.astype(np.float64)
        if name.startswith("SDM@"):
            return 100.0 * self.sdm[:, SDM_KS.index(int(name.removeprefix("SDM@")))].astype(np.float64)
        last = top1_rank(int(self.gallery)) if name == "R@top1" else int(name.removeprefix("R@"))
        return 100.0 * (self.first < last).astype(np.float64)


@dataclass(frozen=True, eq=False)
class RowScores:
    """All queries of one row and seed: condition (`clean`, `paper/fog`, ...) -> split (`D2S 150m`) -> scores."""

    digest: str
    conditions: dict[str, dict[str, SplitScores]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that every split has."""
        splits = list(self.conditions[CLEAN].values())
        return tuple(name for name in splits[0].metrics if all(name in split.metrics for split in splits))

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


def measure(
    source: ImageSource, dataset: Dataset, profiles: Sequence[str], wrapper: str = "", seed: int = 0
) -> RowScores:
    """Rank all queries of a data set, clean and in the ten conditions of each weather profile.

    wrapper: a departure from the single pass. Those of the model itself are around `source.embedder` already.
    """
    if wrapper and wrapper not in WRAPPER_NAMES:
        raise SkyPartError(f"unknown wrapper {wrapper!r}; choose one of {', '.join(WRAPPER_NAMES)}")
    found = {CLEAN: _rank(dataset, source, None, wrapper)}
    for profile in profiles:
        for condition in CONDITIONS:
            corruption = Corruption(condition, profile, seed)
            found[f"{profile}/{condition}"] = (
                found[CLEAN] if condition == "normal" else _rank(dataset, source, corruption, wrapper)
            )
    return RowScores(source.embedder.digest, found)


def _rank(dataset: Dataset, source: ImageSource, corruption: Corruption | None, wrapper: str) -> dict[str, SplitScores]:
    """Scores of every split under one condition."""
    vectors = embed_dataset(dataset, source, corruption)
    found = {}
    for split in dataset.tests:
        query, gallery = stack(split.query, vectors), stack(split.gallery, vectors)
        if wrapper == TENT:
            query = adapt_queries(split, source, gallery, corruption)
        elif wrapper in EMBEDDING_WRAPPERS:
            query, gallery = EMBEDDING_WRAPPERS[wrapper](query, gallery)
        found[split.name] = _rank_split(split, query, gallery)
    return found


def adapt_queries(
    split: TestSplit, source: ImageSource, gallery: NDArray[np.float32], corruption: Corruption | None
) -> NDArray[np.float32]:
    """(q, dim) embeddings of the queries by a model that Tent adapts to them, starting anew for each split.

    Queries come in random order, always the same, because views of one place that stand together would make a batch
    of one place.
    """
    tent = Tent(require_torch(source.embedder), gallery)
    vectors = np.empty((len(split.query), source.embedder.dim), dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(split.query))
    for start in range(0, len(order), source.batch_size):
        chosen = order[start : start + source.batch_size]
        images = []
        for record in (split.query[index] for index in chosen):
            applied = corruption if record.view == "drone" else None
            images.append(source.prepare(record.path, applied, satellite=record.view == "satellite"))
        vectors[chosen] = tent.embed_inputs(source.embedder.preprocess(images))
    return vectors


def _rank_split(split: TestSplit, query: NDArray[np.float32], gallery: NDArray[np.float32]) -> SplitScores:
    ranks = rank_positives(query, locations(split.query), gallery, locations(split.gallery))
    return SplitScores(
        ranks.first().astype(np.int32),
        average_precision(ranks, "official").astype(np.float32),
        average_precision(ranks, "standard").astype(np.float32),
        locations(split.query),
        np.asarray(ranks.gallery),
        _sdm(split, query, gallery).astype(np.float32),
    )


def _sdm(split: TestSplit, query: NDArray[np.float32], gallery: NDArray[np.float32]) -> NDArray[np.float64]:
    """(q, len(SDM_KS)) official SDM of each query; (q, 0) without positions."""
    query_positions, gallery_positions = positions(split.query), positions(split.gallery)
    if query_positions is None or gallery_positions is None or len(gallery) < max(SDM_KS):
        return np.empty((len(query), 0))
    ranking, _ = top_matches(query, gallery, max(SDM_KS))
    return sdm_of_queries(query_positions, gallery_positions, ranking, SDM_KS)


def save_scores(path: Path, scores: RowScores, about: dict[str, Any]) -> None:
    """Write scores to an .npz file, atomically, with facts about how they were made."""
    arrays: dict[str, Any] = {
        f"{condition}|{split}|{field}": getattr(each, field)
        for condition, splits in scores.conditions.items()
        for split, each in splits.items()
        for field in _FIELDS
    }
    facts = {"format": FORMAT, "digest": scores.digest, **about}
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, about=json.dumps(facts), **arrays)


def load_scores(path: Path) -> tuple[RowScores, dict[str, Any]] | None:
    """Read what `save_scores` wrote; None for a file of another version, which must be measured again."""
    try:
        with np.load(path, allow_pickle=False) as content:
            about = json.loads(str(content["about"]))
            if about["format"] != FORMAT:
                return None
            conditions: dict[str, dict[str, SplitScores]] = {}
            for key in content.files:
                if key.endswith("|first"):
                    condition, split, _ = key.split("|")
                    fields = [content[f"{condition}|{split}|{f}"] for f in _FIELDS]
                    conditions.setdefault(condition, {})[split] = SplitScores(*fields)
    except (OSError, ValueError, KeyError) as error:
        raise SkyPartError(f"{path}: damaged ({error}); remove it and run the same command again") from error
    return RowScores(str(about["digest"]), conditions), about
