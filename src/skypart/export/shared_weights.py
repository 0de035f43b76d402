"""Turn an ONNX file into a small graph whose weights are read from the model's own `.safetensors` file.

ONNX tensors may lie in another file, at an offset. The tensors of a safetensors file are plain bytes, so the graph can
refer to them: half-precision weights are widened, and transposed ones transposed, when the session is created.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, load, numpy_helper

from skypart.atomic import atomic_path
from skypart.errors import SkyPartError

MIN_BYTES = 1024
"""Smaller tensors stay in the graph."""
TYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "F16": (TensorProto.FLOAT16, np.dtype("<f2")),
    "F32": (TensorProto.FLOAT, np.dtype("<f4")),
}
"""Types of safetensors that are shared, as (ONNX type, numpy type)."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors file. values: (shape) float32. offset, length: its bytes in the file."""

    kind: int
    values: NDArray[np.float32]
    offset: int
    length: int


def stored_tensors(weights: Path) -> list[StoredTensor]:
    """The floating point tensors of a safetensors file."""
    content = weights.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    found = []
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in TYPES:
            continue
        kind, dtype = TYPES[entry["dtype"]]
        begin, end = (start + offset for offset in entry["data_offsets"])
        values = np.frombuffer(content[begin:end], dtype).reshape(entry["shape"]).astype(np.float32)
        found.append(StoredTensor(kind, values, begin, end - begin))
    return found


def share_weights(graph: Path, weights: Path, output: Path) -> int:
    """Write `graph` (.onnx, float32) to `output`, with its large weights read from `weights` (.safetensors).

    `output` must stand beside `weights`, since the runtime accepts no other folder. Returns the bytes left in the file.
    """
    if output.resolve().parent != weights.resolve().parent:
        raise SkyPartError(f"{output}: must be in the folder of {weights.name}; choose a path there")
    model: ModelProto = load(str(graph))
    by_content = {}
    for tensor in stored_tensors(weights):
        by_content[_key(tensor.values)] = (tensor, False)
        if tensor.values.ndim == 2:
            by_content.setdefault(_key(tensor.values.T), (tensor, True))
    nodes: list[NodeProto] = []
    kept: list[TensorProto] = []
    for initializer in model.graph.initializer:
        values = numpy_helper.to_array(initializer)
        found = by_content.get(_key(values)) if values.dtype == np.float32 and values.nbytes >= MIN_BYTES else None
        if found is None:
            kept.append(initializer)
            continue
        tensor, transposed = found
        last = initializer.name
        if transposed:
            nodes.append(helper.make_node("Transpose", [f"{last}/stored"], [last], perm=[1, 0]))
            last = f"{last}/stored"
        if tensor.kind == TensorProto.FLOAT16:
            nodes.append(helper.make_node("Cast", [f"{last}/half"], [last], to=TensorProto.FLOAT))
            last = f"{last}/half"
        kept.append(_reference(last, tensor, weights.name))
    _replace(model.graph, kept, nodes[::-1])
    for node in model.graph.node:  # where in the code it comes from
        node.doc_string = ""
        del node.metadata_props[:]
    with atomic_path(output) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return output.stat().st_size


def _key(values: NDArray[np.float32]) -> tuple[tuple[int, ...], bytes]:
    return values.shape, values.tobytes()


def _reference(name: str, tensor: StoredTensor, location: str) -> TensorProto:
    """A tensor whose values are bytes of the file `location`."""
    reference = TensorProto(name=name, data_type=tensor.kind, dims=tensor.values.shape)
    reference.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", tensor.offset), ("length", tensor.length)):
        reference.external_data.add(key=key, value=str(value))
    return reference


def _replace(graph: GraphProto, initializers: list[TensorProto], first: list[NodeProto]) -> None:
    """Replace the initializers, and put `first` before all other nodes."""
    later = list(graph.node)
    del graph.initializer[:], graph.node[:], graph.value_info[:]
    graph.initializer.extend(initializers)
    graph.node.extend([*first, *later])
