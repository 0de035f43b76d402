"""Reduce the precision of an exported graph: half-precision weights, or int8 by post-training quantisation."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from skypart.embedding.interface import Inputs
from skypart.errors import SkyPartError
from skypart.export.graph import INSTALL


def write_openvino(onnx_file: Path, file: Path, precision: str, samples: Inputs) -> None:
    """Convert an ONNX file to OpenVINO's `.xml` and `.bin`. samples: (n, 3, size, size), for int8 only."""
    try:
        import openvino
    except ImportError as error:
        raise SkyPartError(f"{file}: {INSTALL}") from error
    model = openvino.Core().read_model(str(onnx_file))
    if precision == "int8":
        model = _quantise(model, samples)
    openvino.save_model(model, str(file), compress_to_fp16=precision != "fp32")


def write_half_onnx(onnx_file: Path, file: Path) -> None:
    """Write an ONNX file with half-precision weights and float32 inputs and outputs."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = convert_float_to_float16(onnx.load(str(onnx_file)), keep_io_types=True, disable_shape_infer=True)
    onnx.save(model, str(file))


def write_int8_onnx(onnx_file: Path, file: Path) -> None:
    """Write an ONNX file whose products with constant weights are int8, channel by channel.

    Activations are quantised when they are known, so no images are needed. NNCF's graphs have zero points that ONNX
    Runtime rejects.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(onnx_file))
    del model.graph.value_info[:]  # shapes of the exporter, which the quantiser takes for a contradiction to its own
    weights = {each.name: len(each.dims) for each in model.graph.initializer}
    others = [
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and not any(weights.get(name) == 2 for name in node.input)
    ]
    logging.disable(logging.WARNING)  # it asks for a preparation that changes nothing here
    try:
        quantize_dynamic(
            model,
            file,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=others,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    finally:
        logging.disable(logging.NOTSET)


def _quantise(model: Any, samples: Inputs) -> Any:
    """Quantise weights and activations of the backbone to int8 with NNCF; the head, which is cheap, stays in float."""
    try:
        import nncf
    except ImportError as error:
        raise SkyPartError(INSTALL) from error
    nncf.set_log_level("ERROR")
    rows = [row[None] for row in np.ascontiguousarray(samples)]
    return nncf.quantize(
        model,
        nncf.Dataset(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(rows),
        fast_bias_correction=True,
    )
