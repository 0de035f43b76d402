"""Evaluate a data set: every altitude, both directions, each image embedded once."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skypart.datasets.records import Dataset, Record, TestSplit, split_name
from skypart.embedding.interface import ModelFacts
from skypart.errors import SkyPartError
from skypart.evaluation.distance import meter_accuracy, sdm
from skypart.evaluation.embedding import Corruption, ImageSource
from skypart.evaluation.metrics import metrics_from_ranks
from skypart.evaluation.published import dataset_title, training_data
from skypart.evaluation.ranking import rank_positives, top_matches
from skypart.evaluation.scores import GalleryMode, is_junk

Vectors: TypeAlias = dict[Path, NDArray[np.float32]]
SDM_KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class Protocol:
    """The settings that every number depends on; every caption states them."""

    size: int
    interpolation: str
    gallery: GalleryMode = "full"
    flip: bool = False
    weather: str | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()  # remarks about the data set that a reader of results should know

    def caption(self) -> str:
        """The settings as text."""
        weather = (
            "" if self.weather is None else f", weather profile {self.weather} (seed {self.seed}, area when corrupted)"
        )
        flip = "with flipped features added" if self.flip else "no flip"
        return (
            f"AP official (standard named where shown), gallery {self.gallery}, input {self.size} px, "
            f"{self.interpolation} interpolation{weather}, {flip}, single pass, no re-ranking"
            + "".join(f"; {note}" for note in self.notes)
        )


@dataclass(frozen=True)
class SplitResult:
    """Metrics in percent of one test split."""

    direction: str
    altitude: float | None
    queries: int
    gallery: int
    metrics: dict[str, float]

    @property
    def name(self) -> str:
        """`D2S`, or `D2S 150m`."""
        return split_name(self.direction, self.altitude)


@dataclass(frozen=True)
class EvaluationResult:
    """All splits of one data set with one model.

    headline: metrics per direction, of the whole test or, if there is none, averaged over altitudes.
    params: parameters and multiply-adds of the model. trained_on: kind of the data set that it was trained on, or
    the name of a rendered world.
    """

    dataset: str
    kind: str
    root: str
    model: str
    digest: str
    protocol: Protocol
    splits: list[SplitResult]
    headline: dict[str, dict[str, float]] = field(default_factory=dict)
    params: str = ""
    trained_on: str = ""

    @property
    def zero_shot(self) -> bool:
        """Whether the model was trained on another kind of data set, or in a rendered world and tested on real data."""
        return bool(self.trained_on) and self.trained_on != self.kind

    def values(self) -> dict[str, float]:
        """Flat `split/metric` -> percent, with the keys of the tables and of the published rows."""
        flat = {f"{split.name}/{metric}": value for split in self.splits for metric, value in split.metrics.items()}
        for direction, metrics in self.headline.items():
            flat |= {f"{direction} mean/{metric}": value for metric, value in metrics.items()}
        return flat

    def as_json(self) -> dict[str, Any]:
        """JSON-compatible data."""
        return asdict(self)


def check_splits(dataset: Dataset) -> None:
    """Raise if a split cannot be evaluated, before anything is embedded."""
    if not dataset.tests:
        raise SkyPartError(f"{dataset.root}: has no test images; see `skypart data check {dataset.root}`")
    for split in dataset.tests:
        if not split.query or not split.gallery:
            part = "gallery" if split.query else "query"
            raise SkyPartError(f"{dataset.root}: {split.name} has no {part} images; see `skypart data check`")
        if not {r.location for r in split.query} & {r.location for r in split.gallery}:
            raise SkyPartError(
                f"{dataset.root}: {split.name}: no query location occurs in the gallery "
                f"(query {split.query[0].location!r}, gallery {split.gallery[0].location!r}); "
                "give the folders of a location the same name"
            )


def embed_dataset(
    dataset: Dataset, source: ImageSource, corruption: Corruption | None = None, flip: bool = False
) -> Vectors:
    """Embed every test image: drone images under `corruption`, satellite images always clean."""
    vectors: Vectors = {}
    weather = "" if corruption is None else f", {corruption.condition}"
    for view in ("satellite", "drone"):
        paths = list(dict.fromkeys(record.path for record in _records(dataset.tests) if record.view == view))
        applied = corruption if view == "drone" else None
        description = f"embedding {view} images{weather if applied else ''}"
        vectors.update(zip(paths, source.embed(paths, applied, flip, description, view == "satellite"), strict=True))
    return vectors


def evaluate(
    dataset: Dataset,
    vectors: Vectors,
    protocol: Protocol,
    model: str = "",
    digest: str = "",
    facts: ModelFacts | None = None,
) -> EvaluationResult:
    """Metrics of every split from the embeddings of `embed_dataset`. facts: of the model, for the tables."""
    splits = [_evaluate_split(split, vectors, protocol) for split in dataset.tests]
    root = str(dataset.root.resolve())
    facts = facts or ModelFacts()
    result = EvaluationResult(
        dataset_title(dataset),
        dataset.kind,
        root,
        model,
        digest,
        protocol,
        splits,
        params=str(facts),
        trained_on=training_data(facts.trained_on, facts.data, dataset),
    )
    result.headline.update(_headline(splits))
    return result


def stack(records: Sequence[Record], vectors: Vectors) -> NDArray[np.float32]:
    """(n, dim) embeddings of `records`."""
    return np.stack([vectors[record.path] for record in records])


def locations(records: Sequence[Record]) -> NDArray[np.str_]:
    """(n,) location names of `records`."""
    return np.array([record.location for record in records])


def masked_gallery_ids(split: TestSplit, gallery_mode: GalleryMode) -> NDArray[np.str_]:
    """(g,) location names of the gallery; "-1" for images that `gallery_mode` excludes."""
    ids = locations(split.gallery)
    return np.where(is_junk(locations(split.query), ids, gallery_mode), "-1", ids)


def positions(records: Sequence[Record]) -> NDArray[np.float64] | None:
    """(n, 2) degrees, longitude first; None unless all records have a position."""
    known = [record.position for record in records if record.position is not None]
    return np.array(known, dtype=np.float64) if len(known) == len(records) else None


def _records(tests: Sequence[TestSplit]) -> Iterator[Record]:
    for split in tests:
        yield from split.query
        yield from split.gallery


def _evaluate_split(split: TestSplit, vectors: Vectors, protocol: Protocol) -> SplitResult:
    query, gallery = stack(split.query, vectors), stack(split.gallery, vectors)
    ranks = rank_positives(query, locations(split.query), gallery, locations(split.gallery), protocol.gallery)
    metrics = metrics_from_ranks(ranks)
    metrics["AP standard"] = metrics_from_ranks(ranks, "standard")["AP"]
    query_positions, gallery_positions = positions(split.query), positions(split.gallery)
    if query_positions is not None and gallery_positions is not None:
        ids = masked_gallery_ids(split, protocol.gallery)
        ks = [k for k in SDM_KS if k <= np.count_nonzero(ids != "-1")]
        ranking, _ = top_matches(query, gallery, max(ks), ids)
        metrics |= sdm(query_positions, gallery_positions, ranking, ks)
        exact = sdm(query_positions, gallery_positions, ranking, ks, mode="exact")
        metrics |= {f"{name} exact": value for name, value in exact.items()}
        metrics |= meter_accuracy(query_positions, gallery_positions, ranking)
    return SplitResult(split.direction, split.altitude, len(query), len(gallery), metrics)


def _headline(splits: Sequence[SplitResult]) -> dict[str, dict[str, float]]:
    """Metrics per direction: of the whole test if there is one, else the mean over altitudes."""
    headline = {}
    for direction in dict.fromkeys(split.direction for split in splits):
        own = [split for split in splits if split.direction == direction]
        whole = [split for split in own if split.altitude is None] or own
        names = [name for name in whole[0].metrics if all(name in split.metrics for split in whole)]
        headline[direction] = {name: float(np.mean([split.metrics[name] for split in whole])) for name in names}
    return headline
