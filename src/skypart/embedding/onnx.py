"""The ONNX Runtime runtime: runs `model.onnx` files that `skypart export` wrote."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.confine import run_confined
from skypart.embedding.exported import INPUT, PARTS, ExportContract, ExportedEmbedder, check_options
from skypart.embedding.interface import Inputs
from skypart.embedding.shipped import shipped_graph, shipped_model, verified_graph
from skypart.errors import SkyPartError

INSTALL = "ONNX Runtime is not installed; pip install onnxruntime"


def open_session(file: Path, threads: int | None = None, beside: Sequence[Path] = ()) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU. threads: None takes OMP_NUM_THREADS, or all cores.

    beside: files that the graph may read its weights from. The runtime and its threads can open no other file, and no
    connection.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise SkyPartError(f"{file}: {INSTALL}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or int(os.environ.get("OMP_NUM_THREADS", "0") or 0)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # else idle threads keep cores busy
    try:
        return run_confined(
            lambda: onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]),
            [file, *beside],
            [file.parent],
        )
    except Exception as error:  # the runtime has its own exceptions, without a common base
        raise SkyPartError(
            f"{file}: ONNX Runtime cannot load it ({str(error).splitlines()[0]}); export it again"
        ) from error


def runtime_version() -> str:
    """The version of ONNX Runtime."""
    import onnxruntime

    return str(onnxruntime.__version__)


class OnnxEmbedder(ExportedEmbedder):
    """A model in ONNX Runtime on the CPU. threads, beside: as in `open_session`."""

    def __init__(
        self, file: Path, contract: ExportContract, threads: int | None = None, beside: Sequence[Path] = ()
    ) -> None:
        super().__init__(contract)
        self._session = open_session(file, threads, beside)
        self._version = runtime_version()

    @property
    def engine(self) -> str:
        """The engine's name and version."""
        return f"ONNX Runtime {self._version}"

    @property
    def can_explain(self) -> bool:
        """Whether the graph outputs its parts."""
        return {output.name for output in self._session.get_outputs()}.issuperset(PARTS)

    @property
    def max_batch(self) -> int:
        """Images per pass. The scales of int8 activations are those of a batch, so an image is alone in its own."""
        return 1 if self.contract.precision == "int8" else super().max_batch

    def run(self, inputs: Inputs, outputs: tuple[str, ...]) -> list[NDArray[np.float32]]:
        """The named outputs for inputs (n, 3, size, size)."""
        found: list[NDArray[np.float32]] = self._session.run(list(outputs), {INPUT: inputs})
        return found


def load_onnx(name: str, device: str = "cpu", size: int | None = None, readout: str | None = None) -> OnnxEmbedder:
    """Load a `.onnx` file; the arguments are those of `skypart.load`."""
    file = Path(name).expanduser()
    contract = ExportContract.read(file)
    check_options(name, contract, device, size, readout)
    return OnnxEmbedder(file, contract)


def load_shipped(name: str, device: str = "cpu", size: int | None = None, readout: str | None = None) -> OnnxEmbedder:
    """Load the shipped model from its ONNX graph, after a check of its SHA-256."""
    graph = verified_graph()
    contract = ExportContract.read(graph)
    check_options(name, contract, device, size, readout)
    return OnnxEmbedder(graph, contract, beside=[shipped_model()])


def shipped_size() -> int:
    """Input size of the shipped model in pixels."""
    return ExportContract.read(shipped_graph()).preprocessing.size
