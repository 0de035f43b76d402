"""The graph that is exported: images in, embedding and the patch tokens that `locate` matches out."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from skypart.embedding.exported import EMBEDDING, INPUT, PARTS, TOKENS
from skypart.errors import SkyPartError
from skypart.model.embedder import TorchEmbedder

INSTALL = "the export needs onnx, onnxscript, openvino and nncf; pip install 'skypart[export]'"
OPSET = 20
"""ONNX operator set: the first with an exact GELU. ONNX Runtime 1.17 and TensorRT 10 read it."""


class DeployedModel(nn.Module):
    """A SkyPart model with the outputs of `Embedder.embed_with_patches`; position embeddings are constants.

    parts: the outputs PARTS, too.
    """

    def __init__(self, embedder: TorchEmbedder, parts: bool = False) -> None:
        super().__init__()
        self.parts = PARTS if parts else ()
        self.model = embedder.model
        self.blocks = embedder.matched_blocks

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(n, 3, size, size) -> embeddings (n, dim), patch tokens (blocks, n, patches, channels), and the parts."""
        backbone, read = self.model.backbone_interface, self.model.taps
        taps = (*read, *self.blocks)
        tokens = backbone.finish(backbone.trunk(images, taps), taps)
        output = self.model.head([each.float() for each in tokens[: len(read)]])
        matched = torch.stack([each.patches.float() for each in tokens[len(read) :]])
        return output.embedding, matched, *(getattr(output, name) for name in self.parts)


def write_onnx(embedder: TorchEmbedder, file: Path, *, parts: bool = False) -> None:
    """Write the graph of a model to `file`, in float32, with a fixed size and any batch. parts: output PARTS, too."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise SkyPartError(f"{file}: {INSTALL}") from error
    module = DeployedModel(embedder, parts).eval()
    example = torch.zeros(2, 3, embedder.size, embedder.size)  # 1 would become a constant
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[EMBEDDING, TOKENS, *module.parts],
            dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
        )
        assert program is not None  # only None if it writes a file itself
        program.save(str(file))
    _check_batch(file)


def _check_batch(file: Path) -> None:
    """Raise if the batch became a constant, as it does where a head reads it with `len`."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    if not graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise SkyPartError(f"{file}: the head fixes the batch size and cannot be exported; use tensor.shape, not len")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own progress lines and its warnings about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
