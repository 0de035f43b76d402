"""Write the shipped model's ONNX graph, `src/skypart/weights/default.onnx`, which runs without PyTorch.

    python packaging/default_onnx.py

The graph takes its weights from `default.safetensors`. It is kept only if its embeddings and rankings are those of
PyTorch, by the same test as `skypart export`. Run this again whenever the shipped model changes.
"""

import json
import tempfile
from pathlib import Path

from skypart.atomic import write_text
from skypart.embedding.exported import contract_file, parity_file
from skypart.embedding.onnx import OnnxEmbedder
from skypart.embedding.shipped import shipped_graph, verified_default, write_sums
from skypart.export.graph import write_onnx
from skypart.export.parity import measure_parity
from skypart.export.places import render_places
from skypart.export.run import PARITY_SEED, ExportOptions, build_contract
from skypart.export.shared_weights import share_weights
from skypart.model.embedder import load_torch, trim_unused_blocks


def main() -> None:
    """Write the graph, its contract, its parity report and SHA256SUMS."""
    weights, graph = verified_default(), shipped_graph()
    options = ExportOptions("onnx", "fp32")
    source = load_torch(weights)
    contract = build_contract(source, source.digest, options)
    trim_unused_blocks(source)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        write_onnx(source, plain, parts=True)
        size = share_weights(plain, weights, graph)
    exported = OnnxEmbedder(graph, contract)
    found = measure_parity(source, exported, render_places(options.parity, PARITY_SEED), options.precision)
    if found.failures:
        graph.unlink()
        raise SystemExit(f"{graph}: differs from PyTorch and was not kept: {'; '.join(found.failures)}")
    write_text(contract_file(graph), contract.to_json())
    report = found.to_dict() | {"engine": exported.engine}
    write_text(parity_file(graph), json.dumps(report, indent=1, allow_nan=False) + "\n")
    write_sums()
    print(f"{graph}: {size / 1e6:.1f} MB; {found.summary()}")


if __name__ == "__main__":
    main()
