"""Exported models: the contract stored beside the file, and the embedder that every exported format shares."""

import json
from abc import abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.interface import Embedder, Explanation, Inputs, PatchTokens, Vectors
from skypart.errors import SkyPartError
from skypart.images.contrast import CONTRAST_VERSION
from skypart.images.decode import ImageLike
from skypart.images.preprocess import MEAN, STD, Preprocessing

FORMAT = 1
MAX_BATCH = 8
"""Images per pass. More do not raise the throughput of a CPU, and cost memory."""
MAX_CONTRACT_BYTES = 1 << 20
MAX_SIZE, MAX_DIM = 8_192, 65_536
"""Largest input size in pixels, and length of an embedding, that a contract may name."""
INPUT, EMBEDDING, TOKENS = "images", "embedding", "tokens"
"""Names of the graph's input (n, 3, size, size) and of its outputs (n, dim) and (blocks, n, patches, channels)."""
PARTS = ("assignment", "salience", "active", "centroids", "gate")
"""Further outputs of a graph that can be explained: the fields of `Explanation`, for n images."""


@dataclass(frozen=True, kw_only=True)
class ExportContract:
    """What a program needs to know to run an exported model; stored as JSON beside it.

    weights: digest of the PyTorch model with the same size. digest: of this export, which has its own caches.
    precision: fp32, fp16 or int8. dim: length of an embedding. grid: (rows, columns) of the patches. blocks: the
    backbone's blocks whose patch tokens are output. preprocessing: size, resize filter, and whether to level contrast.
    """

    weights: str
    digest: str
    precision: str
    dim: int
    grid: tuple[int, int]
    blocks: tuple[int, ...]
    preprocessing: Preprocessing

    def to_json(self) -> str:
        """The content of the file, with the preprocessing spelled out for other programs."""
        steps = [
            "decode to upright 8-bit sRGB",
            f"resize to {self.preprocessing.size} x {self.preprocessing.size}, {self.preprocessing.interpolation}, "
            "antialiased, without keeping the aspect",
            *(["stretch weak contrast as skypart/images/contrast.py does"] if self.preprocessing.level else []),
            "divide by 255, subtract the mean, divide by the standard deviation",
            "order as (n, 3, height, width) float32",
        ]
        content = asdict(self) | {
            "format": FORMAT,
            "preprocessing": {
                **self.preprocessing.describe(),
                "contrast_version": CONTRAST_VERSION if self.preprocessing.level else None,
                "mean": MEAN,
                "std": STD,
                "steps": steps,
            },
            "input": {"name": INPUT, "shape": ["n", 3, self.preprocessing.size, self.preprocessing.size]},
            "outputs": {
                EMBEDDING: ["n", self.dim],
                TOKENS: [len(self.blocks), "n", self.grid[0] * self.grid[1], "channels"],
            },
        }
        return json.dumps(content, indent=1) + "\n"

    @staticmethod
    def read(model: Path) -> "ExportContract":
        """Read the contract of a model file."""
        file = contract_file(model)
        if not model.is_file():
            raise SkyPartError(f"{model}: no such file; check the path")
        if not file.is_file():
            raise SkyPartError(f"{file}: missing; copy it from where {model.name} was exported, or export again")
        try:
            if file.stat().st_size > MAX_CONTRACT_BYTES:
                raise ValueError("it is too long")
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r:.80}")
            prepared = content["preprocessing"]
            if prepared["level"] and prepared["contrast_version"] != CONTRAST_VERSION:
                raise ValueError(f"contrast version {prepared['contrast_version']!r:.80}, here {CONTRAST_VERSION}")
            rows, columns = content["grid"]
            size = _within(prepared["size"], MAX_SIZE, "size")
            return ExportContract(
                weights=str(content["weights"]),
                digest=str(content["digest"]),
                precision=str(content["precision"]),
                dim=_within(content["dim"], MAX_DIM, "dim"),
                grid=(_within(rows, size, "grid"), _within(columns, size, "grid")),
                blocks=tuple(int(block) for block in content["blocks"]),
                preprocessing=Preprocessing(size, prepared["interpolation"], bool(prepared["level"])),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise SkyPartError(
                f"{file}: is damaged or of another version ({reason}); export the model again"
            ) from error


def _within(value: Any, most: int, name: str) -> int:
    """Return `value`. Raises ValueError if it is not a whole number from 1 to `most`."""
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def contract_file(model: Path) -> Path:
    """The contract of a model file: `model.onnx.json` beside `model.onnx`."""
    return model.with_name(f"{model.name}.json")


def parity_file(model: Path) -> Path:
    """The parity report of a model file: `model.onnx.parity.json` beside `model.onnx`."""
    return model.with_name(f"{model.name}.parity.json")


class ExportedEmbedder(Embedder):
    """An exported model. A runtime implements `run`."""

    def __init__(self, contract: ExportContract) -> None:
        self.contract = contract

    @abstractmethod
    def run(self, inputs: Inputs, outputs: tuple[str, ...]) -> list[NDArray[np.float32]]:
        """The named outputs for at most MAX_BATCH inputs (n, 3, size, size)."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """The engine's name and version."""

    @property
    def digest(self) -> str:
        """Hash of the source model and of the export; caches are keyed by it."""
        return self.contract.digest

    @property
    def weights_digest(self) -> str:
        """Digest of the PyTorch model that was exported; indexes are keyed by it."""
        return self.contract.weights

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.contract.dim

    @property
    def preprocessing(self) -> Preprocessing:
        """How photos become model input."""
        return self.contract.preprocessing

    def embed_inputs(self, inputs: Inputs) -> Vectors:
        """Embed preprocessed inputs: (n, dim) unit rows."""
        return self._batched(inputs, (EMBEDDING,))[0]

    def embed_with_patches(self, inputs: Inputs) -> tuple[Vectors, PatchTokens]:
        """Embeddings (n, dim) and patch tokens, in one pass."""
        vectors, tokens = self._batched(inputs, (EMBEDDING, TOKENS))
        return vectors, PatchTokens(tokens, self.contract.grid)

    def patch_tokens(self, inputs: Inputs) -> PatchTokens:
        """Only the patch tokens."""
        return PatchTokens(self._batched(inputs, (TOKENS,))[0], self.contract.grid)

    def explain(self, image: ImageLike) -> Explanation:
        """Parts, salience, layout and fusion gate of one image."""
        if not self.can_explain:
            return super().explain(image)
        embedding, *parts = self.run(self.preprocess([image]), (EMBEDDING, *PARTS))
        assignment, salience, active, centroids, gate = (each[0] for each in parts)
        return Explanation(
            assignment=assignment.reshape(*self.contract.grid, -1),
            salience=salience,
            active=active.astype(bool),
            centroids=centroids,
            gate=gate,
            embedding=embedding[0],
        )

    @property
    def max_batch(self) -> int:
        """Images per pass."""
        return MAX_BATCH

    def _batched(self, inputs: Inputs, outputs: tuple[str, ...]) -> list[NDArray[np.float32]]:
        """`run` in passes of at most `max_batch` images."""
        inputs = np.ascontiguousarray(inputs, dtype=np.float32)
        step = self.max_batch
        parts = [self._checked(inputs[start : start + step], outputs) for start in range(0, len(inputs), step)]
        axes = {EMBEDDING: 0, TOKENS: 1}
        return [
            np.concatenate(found, axis=axes[name]) if len(found) > 1 else found[0]
            for name, found in zip(outputs, zip(*parts, strict=True), strict=True)
        ]

    def _checked(self, inputs: Inputs, outputs: tuple[str, ...]) -> list[NDArray[np.float32]]:
        """`run`, which must give what the contract says: numbers, and as many of them."""
        found = self.run(inputs, outputs)
        for name, values in zip(outputs, found, strict=True):
            patches = self.contract.grid[0] * self.contract.grid[1]
            wanted: tuple[int, ...] = (len(inputs), self.contract.dim)
            shape = values.shape
            if name == TOKENS:
                wanted, shape = (len(self.contract.blocks), len(inputs), patches), values.shape[:3]
            if shape != wanted or not np.isfinite(values).all():
                raise SkyPartError(
                    f"the exported model gives {name} of shape {values.shape}, or values that are no numbers, and not "
                    "what the file beside it says; export it again"
                )
        return found


def check_options(model: str, contract: ExportContract, device: str, size: int | None, readout: str | None) -> None:
    """Raise for options that an export has fixed."""
    if device != "cpu":
        raise SkyPartError(f"{model}: exported models run on the CPU here, not on {device!r}; leave the device out")
    if readout is not None:
        raise SkyPartError(f"{model}: the readout of an export is fixed; use the .safetensors file for {readout!r}")
    if size is not None and size != contract.preprocessing.size:
        raise SkyPartError(
            f"{model}: was exported for {contract.preprocessing.size} pixels, not {size}; "
            f"export it again with --size {size}"
        )
