"""Exported models of a hostile author: their graph reads no other file, and odd contracts are one error message."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skypart.confine import landlock_version
from skypart.embedding.exported import ExportContract, contract_file
from skypart.embedding.onnx import OnnxEmbedder
from skypart.embedding.shipped import shipped_graph
from skypart.errors import SkyPartError

helper = pytest.importorskip("onnx.helper")
TensorProto = pytest.importorskip("onnx").TensorProto
SIZE, DIM = 4, 16


def write_contract(model: Path, **changed: Any) -> None:
    """The contract of a model with inputs of 4 x 4 pixels and embeddings of 16 numbers."""
    content = json.loads(contract_file(shipped_graph()).read_text())
    content["preprocessing"] |= {"size": SIZE, "level": False}
    contract_file(model).write_text(json.dumps(content | {"dim": DIM, "grid": [1, 1], "blocks": [0]} | changed))


def write_graph(model: Path, location: str = "", values: float = 1.0) -> Path:
    """A graph whose embedding (1, 16) is its weight: constant, or read from the file `location`."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(1, DIM))
    if location:
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", str(4 * DIM))):
            weight.external_data.add(key=key, value=value)
    else:
        weight.raw_data = np.full((1, DIM), values, np.float32).tobytes()
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["embedding"])], "g", [images], [embedding], [weight]
    )
    opset = [helper.make_opsetid("", 17)]
    model.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())
    write_contract(model)
    return model


def embedded(model: Path) -> np.ndarray[Any, Any]:
    return OnnxEmbedder(model, ExportContract.read(model)).embed_inputs(np.zeros((1, 3, SIZE, SIZE), np.float32))


def test_a_graph_with_its_own_weights_runs(tmp_path: Path) -> None:
    assert embedded(write_graph(tmp_path / "m.onnx")).tolist() == [[1.0] * DIM]


@pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
@pytest.mark.parametrize("location", ["private.bin", "link.bin", "../outside.bin", "/proc/self/environ"])
def test_a_graph_reads_no_other_file(location: str, tmp_path: Path) -> None:
    """The runtime refuses files in other folders itself; those beside the model it read."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (folder / "private.bin", tmp_path / "outside.bin"):
        file.write_bytes(os.urandom(4 * DIM))
    (folder / "link.bin").symlink_to(folder / "private.bin")
    with pytest.raises(SkyPartError, match=r"m\.onnx: ONNX Runtime cannot load it") as error:
        embedded(write_graph(folder / "m.onnx", location))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_embeddings_that_are_no_numbers_are_an_error(value: float, tmp_path: Path) -> None:
    with pytest.raises(SkyPartError, match="gives embedding"):
        embedded(write_graph(tmp_path / "m.onnx", values=value))


def test_a_graph_of_another_length_is_an_error(tmp_path: Path) -> None:
    model = write_graph(tmp_path / "m.onnx")
    write_contract(model, dim=DIM + 1)
    with pytest.raises(SkyPartError, match=r"gives embedding of shape \(1, 16\)"):
        embedded(model)


ODD: list[dict[str, Any]] = [
    {"dim": 10**12},
    {"dim": -1},
    {"dim": float("inf")},
    {"dim": "16"},
    {"grid": [10**9, 10**9]},
    {"grid": [1]},
    {"grid": [0, 1]},
    {"blocks": 5},
    {"blocks": [float("inf")]},
    {"format": "9" * 100_000},
    {"preprocessing": None},
    {"preprocessing": {"size": 10**9, "level": False, "interpolation": "bicubic"}},
    {"preprocessing": {"size": 0, "level": False, "interpolation": "bicubic"}},
    {"weights": None, "preprocessing": []},
]


@pytest.mark.parametrize("changed", ODD, ids=lambda value: str(value)[:40])
def test_odd_contracts_are_one_error_message(changed: dict[str, Any], tmp_path: Path) -> None:
    model = write_graph(tmp_path / "m.onnx")
    write_contract(model, **changed)
    with pytest.raises(SkyPartError, match=r"m\.onnx\.json") as error:
        ExportContract.read(model)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "null", '"', "", "\0", " " * (1 << 21)])
def test_contracts_that_are_no_json_are_one_error_message(text: str, tmp_path: Path) -> None:
    model = write_graph(tmp_path / "m.onnx")
    contract_file(model).write_text(text)
    with pytest.raises(SkyPartError, match=r"m\.onnx\.json"):
        ExportContract.read(model)
