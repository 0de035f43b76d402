"""Average the weights of two models. If both come from one run, the mean is often better than either.

python -m skypart.model.mean EARLIER LAST --share 0.3 -o OUT.safetensors
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from skypart.atomic import check_writable
from skypart.errors import SkyPartError
from skypart.model.embedder import load_torch, save, trim_unused_blocks
from skypart.model.skypart import SkyPart


def mean_model(earlier: str | Path, last: str | Path, share: float) -> SkyPart:
    """`last` with the weights share * earlier + (1 - share) * last, without unused blocks."""
    if not 0.0 <= share <= 1.0:
        raise SkyPartError(f"--share {share:g} is out of range; choose a value between 0 and 1")
    one, two = (trim_unused_blocks(load_torch(path)).model for path in (earlier, last))
    weights, others = two.state_dict(), one.state_dict()
    different = [key for key in {**weights, **others} if key not in others or key not in weights]
    different += [key for key in weights if key in others and weights[key].shape != others[key].shape]
    if different:
        raise SkyPartError(
            f"{earlier} and {last}: the architectures differ (first: {different[0]}); choose two models of one kind"
        )
    with torch.no_grad():
        for key, value in weights.items():
            if value.is_floating_point():
                value.lerp_(others[key], share)  # changes the model in place
    trained = two.provenance.get("training", "not recorded")
    two.provenance["training"] = (
        f"{trained}; then the mean of its weights ({1 - share:g}) and those of the model before ({share:g})"
    )
    return two


def main() -> None:
    """Write the mean in half precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier")
    parser.add_argument("last")
    parser.add_argument("--share", type=float, default=0.5, help="weight of the earlier model")
    parser.add_argument("--about", type=Path, help="JSON file with further entries for the provenance")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        check_writable(arguments.out)
        about = _read_about(arguments.about) if arguments.about is not None else {}
        model = mean_model(arguments.earlier, arguments.last, arguments.share)
        model.provenance |= about
        save(model, arguments.out, dtype="float16")
    except SkyPartError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"wrote {arguments.out}")


def _read_about(path: Path) -> dict[str, Any]:
    """The entries of a JSON file."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SkyPartError(f"{path}: not readable as JSON ({error}); fix it or omit --about") from error
    if not isinstance(entries, dict):
        raise SkyPartError(f"{path}: not a JSON object; fix it or omit --about")
    return entries


if __name__ == "__main__":
    main()
