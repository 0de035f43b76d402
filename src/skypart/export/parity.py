"""Parity: whether an export gives the results of the PyTorch model, and by how much it differs."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.embedding import Embedder, PatchTokens
from skypart.export.places import Places
from skypart.progress import with_progress

Floats = NDArray[np.float32]

MIN_COSINE = {"fp32": 0.9999, "fp16": 0.999}
"""Smallest cosine to PyTorch of any image."""
MIN_MEAN_COSINE = 0.99
"""Mean cosine of an int8 export."""
MIN_SAME_TOP1 = 0.999
"""Share of photos whose nearest other image is the same one (fp32 and fp16)."""
MAX_RECALL_LOSS = 0.005
"""Points of R@1 that an int8 export may lose."""
MAX_LOCATED_LOSS = 0.01
"""Share of photos that `locate` may place less often with an int8 export."""
CHANCE = 1.64
"""Standard deviations that chance exceeds in one case of twenty."""


@dataclass(frozen=True)
class Parity:
    """How an export compares with PyTorch on the same images.

    cosine: smallest and mean cosine of two embeddings of an image. token_cosine: mean over all patch tokens. same_top1:
    share of photos with the same nearest other image. recall, recall_torch: R@1 from photo to satellite image, NaN
    without places. located, located_torch: share of rendered photos that `locate` places right, NaN if not compared.
    failures: what is worse than allowed; empty if the export may be kept.
    """

    images: int
    precision: str
    min_cosine: float
    mean_cosine: float
    token_cosine: float
    same_top1: float
    recall: float
    recall_torch: float
    failures: tuple[str, ...]
    located: float = float("nan")
    located_torch: float = float("nan")

    def summary(self) -> str:
        """One line for the terminal."""
        recall = (
            "" if self.recall != self.recall else f", R@1 {100 * self.recall:.1f} % ({100 * self.recall_torch:.1f} %)"
        )
        located = (
            ""
            if self.located != self.located
            else f", photos placed right {100 * self.located:.0f} % ({100 * self.located_torch:.0f} %)"
        )
        return (
            f"cosine to PyTorch at least {self.min_cosine:.5f}, mean {self.mean_cosine:.5f}, on {self.images} images; "
            f"same nearest image for {100 * self.same_top1:.1f} %{recall}{located}"
        )

    def with_located(self, right: NDArray[np.bool_]) -> "Parity":
        """The same with the shares of photos that `locate` places right, and a failure if the export places fewer.

        right: (photos, 2) for PyTorch and for the export. It may lose MAX_LOCATED_LOSS, and what chance explains of the
        photos on which they differ.
        """
        torch, exported = right.mean(axis=0).tolist()
        lost = int((right[:, 0] & ~right[:, 1]).sum())
        gained = int((right[:, 1] & ~right[:, 0]).sum())
        allowed = MAX_LOCATED_LOSS * len(right) + CHANCE * math.sqrt(lost + gained)
        message = f"places {100 * exported:.0f} % of the photos right, PyTorch {100 * torch:.0f} %"
        failure = (message,) if lost - gained > allowed else ()
        return replace(self, located=exported, located_torch=torch, failures=self.failures + failure)

    def to_dict(self) -> dict[str, Any]:
        """Content for JSON, where null means that it was not measured."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


def measure_parity(reference: Embedder, exported: Embedder, places: Places, precision: str) -> Parity:
    """Embed all images with both models and compare; each with its own preprocessing, as it is used."""
    images = places.images
    pairs = [
        (
            reference.embed_with_patches(reference.preprocess(batch)),
            exported.embed_with_patches(exported.preprocess(batch)),
        )
        for batch in with_progress([images[start : start + 8] for start in range(0, len(images), 8)], "checking parity")
    ]
    ours, theirs = (np.concatenate([pair[which][0] for pair in pairs]) for which in (0, 1))
    tokens = np.concatenate([_token_cosines(one[1], other[1]) for one, other in pairs])
    return judge(ours, theirs, places, precision, float(tokens.mean()))


def judge(ours: Floats, theirs: Floats, places: Places, precision: str, token_cosine: float = 1.0) -> Parity:
    """Compare the embeddings (n, dim) of PyTorch and of an export, of `places.images`, and list what fails."""
    cosines = (ours * theirs).sum(axis=1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)).clip(1e-12)
    cosines = np.nan_to_num(cosines, nan=-1.0)
    photos = len(places.drones)
    same = float(np.mean(_nearest_other(ours, ours)[:photos] == _nearest_other(theirs, ours)[:photos]))
    recall_torch, recall = (_recall(each, places) for each in (ours, theirs))
    lowest, mean = float(cosines.min()), float(cosines.mean())
    failures = []
    if precision in MIN_COSINE:
        if lowest < MIN_COSINE[precision]:
            failures.append(f"smallest cosine {lowest:.6f}, needed {MIN_COSINE[precision]}")
        if same < MIN_SAME_TOP1:
            failures.append(f"same nearest image for {100 * same:.1f} %, needed {100 * MIN_SAME_TOP1:.1f} %")
    elif mean < MIN_MEAN_COSINE:
        failures.append(f"mean cosine {mean:.4f}, needed {MIN_MEAN_COSINE}")
    if recall < recall_torch - MAX_RECALL_LOSS - 1e-9:
        failures.append(f"R@1 {100 * recall:.1f} %, PyTorch {100 * recall_torch:.1f} %")
    return Parity(len(ours), precision, lowest, mean, token_cosine, same, recall, recall_torch, tuple(failures))


def _nearest_other(queries: Floats, gallery: Floats) -> NDArray[np.int64]:
    """(n,) for each query, the most similar image of the gallery that is not itself."""
    similar = queries @ gallery.T
    np.fill_diagonal(similar, -np.inf)
    nearest: NDArray[np.int64] = similar.argmax(axis=1)
    return nearest


def _recall(vectors: Floats, places: Places) -> float:
    """R@1 from drone photos to satellite images."""
    if not places.satellites:
        return float("nan")
    photos = len(places.drones)
    return float(np.mean((vectors[:photos] @ vectors[photos:].T).argmax(axis=1) == np.array(places.place)))


def _token_cosines(one: PatchTokens, other: PatchTokens) -> Floats:
    """(n,) mean cosine of the patch tokens of each image, over blocks and patches."""
    product = (one.tokens * other.tokens).sum(axis=-1)
    norms = np.linalg.norm(one.tokens, axis=-1) * np.linalg.norm(other.tokens, axis=-1)
    cosines: Floats = (product / norms.clip(1e-12)).mean(axis=(0, 2))
    return cosines
