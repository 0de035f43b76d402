"""The precision of matrix products."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from skypart.training import precision as module
from skypart.training.precision import Precision, choose_precision, has_native_bfloat16
from tests.training.small_runs import ALONE, small_recipe, small_run
from tests.training.test_step import losses

HALF = torch.bfloat16


@pytest.mark.parametrize(
    ("requested", "native", "wanted"),
    [
        ("auto", True, Precision(None, HALF)),
        ("auto", False, Precision()),
        ("auto", None, Precision()),
        ("float32", True, Precision()),
        ("bfloat16", False, Precision(HALF, HALF)),
    ],
)
def test_precision_on_a_cpu(
    requested: str, native: bool | None, wanted: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_native_bfloat16", lambda: native)
    recipe = small_recipe(tmp_path, tmp_path)
    recipe = replace(recipe, optimiser=replace(recipe.optimiser, precision=requested))  # type: ignore[arg-type]
    assert choose_precision(recipe, ALONE.device) == wanted


def test_bfloat16_support_comes_from_the_capabilities_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, wanted in (({"avx512_bf16": True}, True), ({"bf16": True}, True), ({"avx2": True}, False), ({}, None)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found, raising=False)
        assert has_native_bfloat16() is wanted
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert has_native_bfloat16() is None


def test_only_frozen_blocks_and_the_average_use_bfloat16(
    sues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainable blocks stay in float32; losses change only by the rounding of bfloat16."""
    found, seen = {}, {}
    for native in (False, True):
        monkeypatch.setattr(module, "has_native_bfloat16", lambda native=native: native)
        auto = replace(small_recipe(sues, tmp_path).optimiser, precision="auto")
        run = small_run(sues, tmp_path / str(native), optimiser=auto)
        student: Any = run.student.backbone_interface
        blocks = {"frozen": student.blocks[0], "learns": student.blocks[-1]}
        assert run.average is not None
        average: Any = run.average.model.backbone_interface
        blocks["average"] = average.blocks[-1]
        kinds: dict[str, torch.dtype] = {}
        for name, block in blocks.items():
            block.mlp.fc1.register_forward_hook(
                lambda _, __, out, name=name, kinds=kinds: kinds.update({name: out.dtype})
            )
        report = losses(run)
        report.total.backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is None or p.grad.dtype == torch.float32 for p in run.student.parameters())
        found[native], seen[native] = report, kinds
    assert seen[False] == dict.fromkeys(("frozen", "learns", "average"), torch.float32)
    assert seen[True] == {"frozen": HALF, "learns": torch.float32, "average": HALF}
    for name, value in found[False].terms.items():
        assert float(found[True].terms[name]) == pytest.approx(float(value), rel=0.05, abs=0.02), name
    assert float(found[True].total.detach()) != float(found[False].total.detach())
