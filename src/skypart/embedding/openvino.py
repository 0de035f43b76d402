"""The OpenVINO runtime: runs `model.xml` files that `skypart export` wrote."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skypart.embedding.exported import INPUT, ExportContract, ExportedEmbedder, check_options
from skypart.embedding.interface import Inputs
from skypart.errors import SkyPartError

INSTALL = "OpenVINO is not installed; pip install 'skypart[openvino]'"


class OpenVinoEmbedder(ExportedEmbedder):
    """A model in OpenVINO on the CPU, in float32 wherever it is not quantised, also if the CPU has bfloat16.

    threads: None takes OMP_NUM_THREADS, or all cores.
    """

    def __init__(self, file: Path, contract: ExportContract, threads: int | None = None) -> None:
        try:
            import openvino
        except ImportError as error:
            raise SkyPartError(f"{file}: {INSTALL}") from error
        super().__init__(contract)
        if not file.with_suffix(".bin").is_file():
            raise SkyPartError(f"{file.with_suffix('.bin')}: missing; it holds the weights of {file.name}: copy both")
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        count = threads or int(os.environ.get("OMP_NUM_THREADS", "0") or 0)
        if count:
            settings["INFERENCE_NUM_THREADS"] = count
        self._version: str = openvino.get_version().split("-")[0]
        try:
            self._model = openvino.Core().compile_model(str(file), "CPU", settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise SkyPartError(f"{file}: OpenVINO cannot load it ({reason}); export it again") from error
        self._requests = threading.local()  # a request is for one thread at a time

    @property
    def engine(self) -> str:
        """The engine's name and version."""
        return f"OpenVINO {self._version}"

    def run(self, inputs: Inputs, outputs: tuple[str, ...]) -> list[NDArray[np.float32]]:
        """The named outputs for inputs (n, 3, size, size); copies, since the engine reuses its own buffers."""
        if not hasattr(self._requests, "own"):
            self._requests.own = self._model.create_infer_request()
        request = self._requests.own
        request.infer({INPUT: inputs}, share_inputs=True)
        return [np.array(request.get_tensor(name).data) for name in outputs]


def load_openvino(
    name: str, device: str = "cpu", size: int | None = None, readout: str | None = None
) -> OpenVinoEmbedder:
    """Load a `.xml` file; the arguments are those of `skypart.load`."""
    file = Path(name).expanduser()
    contract = ExportContract.read(file)
    check_options(name, contract, device, size, readout)
    return OpenVinoEmbedder(file, contract)
