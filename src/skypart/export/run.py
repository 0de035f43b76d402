"""`skypart export`: write a model for another engine, prove that it gives the same results, and only then keep it."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from skypart.atomic import atomic_path, check_writable, write_text
from skypart.embedding.exported import ExportContract, contract_file, parity_file
from skypart.embedding.interface import Embedder
from skypart.embedding.runtimes import load
from skypart.errors import SkyPartError
from skypart.export.graph import write_onnx
from skypart.export.located import compare_locating
from skypart.export.parity import Parity, measure_parity
from skypart.export.places import Places, named_images, render_places
from skypart.export.quantise import write_half_onnx, write_int8_onnx, write_openvino
from skypart.model.embedder import TorchEmbedder, load_torch, trim_unused_blocks

SUFFIXES = {"onnx": ".onnx", "openvino": ".xml"}
PRECISIONS = ("fp32", "fp16", "int8")
CALIBRATION_SEED, PARITY_SEED = 31, 32


@dataclass(frozen=True)
class ExportOptions:
    """Settings of an export.

    to: onnx or openvino. precision: fp32, fp16 or int8. size: input size in pixels; None: the model's own. images:
    photos or folders to calibrate OpenVINO's int8 on; empty: a rendered world. calibration: how many of them. parity:
    photos that the results are compared on, in all weathers.
    """

    to: str = "onnx"
    precision: str = "fp32"
    size: int | None = None
    images: tuple[Path, ...] = ()
    calibration: int = 100
    parity: int = 200

    def __post_init__(self) -> None:
        """Raise for values out of range."""
        if self.to not in SUFFIXES:
            raise SkyPartError(f"--to {self.to}: no such format; choose onnx or openvino")
        if self.precision not in PRECISIONS:
            raise SkyPartError(f"--precision {self.precision}: no such precision; choose {', '.join(PRECISIONS)}")
        if self.calibration < 10 or self.parity < 10:
            raise SkyPartError("an export needs at least 10 images to calibrate and 10 to compare; give larger numbers")


def default_output(name: str, options: ExportOptions) -> Path:
    """A file in this folder, named after the model, its precision and its size if it is not the model's own."""
    size = "" if options.size is None else f"-{options.size}"
    return Path(f"{Path(name).stem}-{options.precision}{size}{SUFFIXES[options.to]}")


def export_model(name: str, output: Path, options: ExportOptions) -> Parity:
    """Export a model to `output`, whose suffix must fit the format, with its contract and parity report beside it.

    Raises if the export differs from PyTorch by more than `skypart.export.parity` allows; then nothing is kept.
    """
    suffix = SUFFIXES[options.to]
    if output.suffix != suffix:
        raise SkyPartError(f"{output}: the format {options.to} has the suffix {suffix}; rename the output")
    check_writable(output)
    source = load_torch(name, "cpu", options.size)
    source.preprocessing.check_unwarped(name)
    digest = source.digest  # of the whole model, before blocks are dropped
    contract = build_contract(source, digest, options)
    trim_unused_blocks(source)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".export-") as folder:
        draft = Path(folder) / f"draft{suffix}"
        write_graph(source, draft, options)
        write_text(contract_file(draft), contract.to_json())
        exported = load(draft)
        found = measure_parity(source, exported, _parity_images(options), options.precision)
        if options.precision == "int8" and not found.failures:
            count = max(1, options.parity // 2)
            found = found.with_located(compare_locating(source, exported, count, PARITY_SEED, Path(folder)))
        if found.failures:
            raise SkyPartError(
                f"{output}: differs too much from PyTorch and was not kept: {'; '.join(found.failures)}; "
                "use a higher precision, or name images like your own (--images)"
            )
        report = json.dumps(found.to_dict() | {"engine": _engine(exported)}, indent=1, allow_nan=False) + "\n"
        write_text(parity_file(output), report)
        write_text(contract_file(output), contract.to_json())
        if draft.with_suffix(".bin").is_file():
            _move(draft.with_suffix(".bin"), output.with_suffix(".bin"))
        _move(draft, output)
    return found


def build_contract(source: TorchEmbedder, weights: str, options: ExportOptions) -> ExportContract:
    """The contract of an export of `source`."""
    calibrated = [str(path) for path in options.images] if options.precision == "int8" else []
    key = json.dumps([weights, options.to, options.precision, calibrated, options.calibration])
    rows = source.size // source.model.backbone_interface.patch
    return ExportContract(
        weights=weights,
        digest=hashlib.blake2b(key.encode(), digest_size=16).hexdigest(),
        precision=options.precision,
        dim=source.dim,
        grid=(rows, rows),
        blocks=source.matched_blocks,
        preprocessing=replace(source.preprocessing),
    )


def write_graph(source: TorchEmbedder, draft: Path, options: ExportOptions) -> None:
    """Write the graph in the wanted format and precision."""
    plain = draft.with_name("plain.onnx")
    write_onnx(source, plain)
    if options.to == "onnx" and options.precision == "fp32":
        plain.rename(draft)
        return
    if options.to == "onnx":
        (write_int8_onnx if options.precision == "int8" else write_half_onnx)(plain, draft)
        return
    samples = np.zeros((0, 3, source.size, source.size), dtype=np.float32)
    if options.precision == "int8":
        places = (
            named_images(options.images, options.calibration)
            if options.images
            else render_places(2 * options.calibration // 3, CALIBRATION_SEED)  # and half as many satellite images
        )
        samples = source.preprocess(places.images)
    write_openvino(plain, draft, options.precision, samples)


def _parity_images(options: ExportOptions) -> Places:
    """Photos in all weathers that the export was not calibrated on."""
    return render_places(options.parity, PARITY_SEED)


def _engine(exported: Embedder) -> str:
    return str(getattr(exported, "engine", ""))


def _move(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
