"""Peers' heads against plain-loop formulas on tiny tokens."""

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

import skypart
from skypart.errors import SkyPartError
from skypart.model import SkyPart, VisionTransformer
from skypart.model.heads import HEADS, Head, HeadSettings, build_head, describe_settings, read_settings, settings_class
from skypart.model.heads.boq import BoqSettings
from skypart.model.heads.cls import ClsSettings
from skypart.model.heads.fsra import FsraSettings, pool_by_heat
from skypart.model.heads.gem import GemSettings, generalised_mean
from skypart.model.heads.lpn import LpnSettings, ring_of_patch
from skypart.model.heads.netvlad import NetVladSettings, residual_sums
from skypart.model.heads.salad import SaladSettings, transport_plan
from skypart.model.storage import read_header
from skypart.model.vit import Tokens
from tests.model.builders import TINY_VIT, random_images

SMALL: dict[str, HeadSettings] = {
    "cls": ClsSettings(),
    "gem": GemSettings(embedding_dim=12),
    "lpn": LpnSettings(embedding_dim=12, rings=2),
    "fsra": FsraSettings(embedding_dim=12, regions=2),
    "netvlad": NetVladSettings(embedding_dim=12, clusters=3, channels=5),
    "salad": SaladSettings(embedding_dim=12, clusters=2, channels=4, scene_channels=4, hidden=8),
    "boq": BoqSettings(embedding_dim=12, channels=6, heads=2, queries=3, rows=2),
}
DIM, GRID = 8, (3, 4)


def tokens(batch: int = 2) -> Tokens:
    generator = torch.Generator().manual_seed(3)
    patches = torch.randn(batch, GRID[0] * GRID[1], DIM, generator=generator)
    return Tokens(torch.randn(batch, DIM, generator=generator), patches, GRID)


def head_of(kind: str) -> Head:
    torch.manual_seed(1)
    return build_head(SMALL[kind], DIM).eval()


def unit(values: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def linear(layer: torch.nn.Module, x: Sequence[float]) -> list[float]:
    weight, bias = layer.weight.tolist(), layer.bias.tolist() if layer.bias is not None else None  # type: ignore
    return [
        sum(w * each for w, each in zip(row, x, strict=True)) + (bias[i] if bias else 0.0)
        for i, row in enumerate(weight)
    ]


def test_every_registered_head_is_tried_here() -> None:
    assert set(SMALL) == set(HEADS) - {"skypart"}


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_heads_name_themselves_and_settings_survive_a_file(kind: str) -> None:
    settings = settings_class(kind)()
    assert settings.kind == kind
    again = read_settings(json.loads(json.dumps(describe_settings(settings))))
    assert again == settings and type(again) is type(settings)
    assert {field.name for field in fields(settings)} == set(settings.to_dict())


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_embeddings_are_unit_rows_of_the_stated_width_in_any_batch(kind: str) -> None:
    head, given = head_of(kind), tokens(3)
    with torch.no_grad():
        embedding = head([given]).embedding
        assert embedding.shape == (3, head.widths["embedding"])
        torch.testing.assert_close(embedding.norm(dim=-1), torch.ones(3))
        alone = head([Tokens(given.cls[1:2], given.patches[1:2], GRID)]).embedding
        torch.testing.assert_close(alone[0], embedding[1])


@pytest.mark.parametrize("kind", sorted(set(SMALL) - {"cls"}))
def test_gradients_reach_every_parameter_of_a_peer(kind: str) -> None:
    head = head_of(kind).train()
    towards = torch.randn(4, head.widths["embedding"], generator=torch.Generator().manual_seed(0))
    (head([tokens(4)]).embedding * towards).sum().backward()
    rules = head.parameter_rules()
    assert set(rules) == {name for name, _ in head.named_parameters()}
    for name, parameter in head.named_parameters():
        if not name.endswith(
            ("among.in_proj_bias", "across.in_proj_bias", "self_attn.in_proj_bias")
        ):  # keys' bias: none
            assert parameter.grad is not None and bool(parameter.grad.abs().sum() > 0), name


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_a_peer_is_saved_loaded_and_embeds_like_before(kind: str, tmp_path: Path) -> None:
    model = SkyPart(VisionTransformer(TINY_VIT), SMALL[kind]).eval()
    skypart.save(model, tmp_path / "model.safetensors")
    assert json.loads(read_header(tmp_path / "model.safetensors")["head"])["kind"] == kind
    again = skypart.model.load_model(tmp_path / "model.safetensors")
    with torch.no_grad():
        assert torch.equal(again(random_images(2, 56, 56)).embedding, model(random_images(2, 56, 56)).embedding)
    assert again.config == SMALL[kind]


def test_cls_is_the_normalised_token_or_its_projection() -> None:
    given = tokens()
    with torch.no_grad():
        plain = head_of("cls")([given]).embedding
        assert not list(head_of("cls").parameters())
        for b in range(2):
            torch.testing.assert_close(plain[b], torch.tensor(unit(given.cls[b].tolist())))
        projected = build_head(ClsSettings(embedding_dim=5), DIM).eval()
        by_hand = unit(linear(projected.project, given.cls[0].tolist()))  # type: ignore[arg-type]
        torch.testing.assert_close(projected([given]).embedding[0], torch.tensor(by_hand))


def test_gem_is_the_power_mean_over_patches() -> None:
    patches = tokens().patches
    for p in (1.0, 3.0, 7.5):
        found = generalised_mean(patches, torch.tensor(p))
        for b in range(2):
            for c in range(DIM):
                powers = [max(float(x), 1e-6) ** p for x in patches[b, :, c]]
                assert float(found[b, c]) == pytest.approx((sum(powers) / len(powers)) ** (1 / p), rel=1e-4)
    head = head_of("gem")
    with torch.no_grad():
        pooled = generalised_mean(patches, torch.tensor(3.0))
        by_hand = torch.tensor(unit(linear(head.project, pooled[0].tolist())))  # type: ignore[arg-type]
        torch.testing.assert_close(head([tokens()]).embedding[0], by_hand)


@pytest.mark.parametrize(("grid", "rings"), [((3, 4), 2), ((8, 8), 4), ((7, 7), 3), ((16, 16), 4)])
def test_rings_are_concentric_squares(grid: tuple[int, int], rings: int) -> None:
    found = ring_of_patch(grid, rings).reshape(grid).tolist()
    for row in range(grid[0]):
        for column in range(grid[1]):
            y, x = abs((row + 0.5) / grid[0] * 2 - 1), abs((column + 0.5) / grid[1] * 2 - 1)
            assert found[row][column] == min(rings - 1, int(max(y, x) * rings))
    if grid == (8, 8):
        assert [found[row].count(3) for row in range(8)] == [8, 2, 2, 2, 2, 2, 2, 8]


def region_embedding(head: Head, pooled: list[list[float]]) -> Tensor:
    """Linear layer, batch norm in evaluation mode and unit length of each region, side by side."""
    joined: list[float] = []
    for layer, region in zip(head.project, pooled, strict=True):  # type: ignore[arg-type]
        norm = layer[1]
        values = linear(layer[0], region)
        joined += unit([
            (v - m) / math.sqrt(s + norm.eps) * w + b
            for v, m, s, w, b in zip(
                values, norm.running_mean, norm.running_var, norm.weight.tolist(), norm.bias.tolist(), strict=True
            )
        ])  # fmt: skip
    return torch.tensor(unit(joined))


def test_lpn_is_the_mean_of_each_ring() -> None:
    head, given = head_of("lpn"), tokens()
    ring = ring_of_patch(GRID, 2).tolist()
    pooled = []
    for number in range(2):
        members = [given.patches[0, i].tolist() for i in range(len(ring)) if ring[i] == number]
        pooled.append([sum(column) / len(members) for column in zip(*members, strict=True)])
    with torch.no_grad():
        output = head([given])
        torch.testing.assert_close(output.embedding[0], region_embedding(head, pooled), atol=1e-5, rtol=1e-4)
        assert output.branches.shape == (2, 2, 6)


def test_a_grid_without_a_middle_ring_does_not_break_lpn() -> None:
    head = build_head(LpnSettings(embedding_dim=16, rings=8), DIM).eval()
    with torch.no_grad():
        assert bool(torch.isfinite(head([tokens()]).embedding).all())


def test_fsra_groups_patches_by_heat() -> None:
    patches = tokens().patches
    found = pool_by_heat(patches, 5)  # 12 patches: 3, 3, 2, 2, 2
    for b in range(2):
        ranked = sorted(range(12), key=lambda i: -sum(patches[b, i].tolist()))
        start = 0
        for group, size in enumerate((3, 3, 2, 2, 2)):
            members = ranked[start : start + size]
            start += size
            for c in range(DIM):
                mean = sum(float(patches[b, i, c]) for i in members) / size
                assert float(found[b, group, c]) == pytest.approx(mean, abs=1e-5)
    head, given = head_of("fsra"), tokens()
    pooled = [given.cls[0].tolist(), *pool_by_heat(given.patches, 2)[0].tolist()]
    with torch.no_grad():
        torch.testing.assert_close(head([given]).embedding[0], region_embedding(head, pooled), atol=1e-5, rtol=1e-4)


def test_netvlad_sums_residuals_by_soft_assignment() -> None:
    generator = torch.Generator().manual_seed(5)
    patches, centres = torch.randn(2, 6, 4, generator=generator), torch.randn(3, 4, generator=generator)
    assignment = torch.randn(2, 6, 3, generator=generator).softmax(-1)
    found = residual_sums(patches, assignment, centres)
    for b in range(2):
        for k in range(3):
            for c in range(4):
                total = sum(
                    float(assignment[b, i, k]) * (float(patches[b, i, c]) - float(centres[k, c])) for i in range(6)
                )
                assert float(found[b, k, c]) == pytest.approx(total, abs=1e-5)


def sinkhorn_by_loops(scores: list[list[float]], dustbin: float, iterations: int) -> list[list[float]]:
    """Alternating scaling of exp(scores) with a dustbin column, in plain probabilities."""
    patches, clusters = len(scores), len(scores[0])
    spare = max(patches - clusters, 1)
    mass = [[math.exp(s) for s in row] + [math.exp(dustbin)] for row in scores]
    wanted = [1 / (clusters + spare)] * clusters + [spare / (clusters + spare)]
    for _ in range(iterations):
        mass = [[each / sum(row) / patches for each in row] for row in mass]
        sums = [sum(row[k] for row in mass) for k in range(clusters + 1)]
        mass = [[each * wanted[k] / sums[k] for k, each in enumerate(row)] for row in mass]
    return [[each * patches for each in row[:-1]] for row in mass]


@pytest.mark.parametrize(("patches", "clusters"), [(7, 3), (4, 6)])
@pytest.mark.parametrize("iterations", [1, 3, 60])
def test_salad_transports_patches_to_clusters(patches: int, clusters: int, iterations: int) -> None:
    scores = torch.randn(2, patches, clusters, generator=torch.Generator().manual_seed(7))
    plan = transport_plan(scores, torch.tensor(0.4), iterations)
    for b in range(2):
        by_hand = sinkhorn_by_loops(scores[b].tolist(), 0.4, iterations)
        torch.testing.assert_close(plan[b], torch.tensor(by_hand), atol=1e-5, rtol=1e-4)
    if iterations == 60 and patches > clusters:
        torch.testing.assert_close(plan.sum(1), torch.ones(2, clusters), atol=1e-4, rtol=1e-4)  # clusters are full
        assert bool((plan.sum(2) < 1).all())  # the dustbin has the rest


def attention_by_loops(layer: torch.nn.MultiheadAttention, queries: Tensor, keys: Tensor) -> Tensor:
    """Multi-head attention of queries (q, c) over keys (n, c), by loops over heads and queries."""
    channels, heads = layer.embed_dim, layer.num_heads
    width = channels // heads
    wq, wk, wv = layer.in_proj_weight.chunk(3)
    bq, bk, bv = layer.in_proj_bias.chunk(3)
    q, k, v = queries @ wq.T + bq, keys @ wk.T + bk, keys @ wv.T + bv
    rows = []
    for i in range(len(q)):
        joined: list[float] = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            logits = [float((q[i, part] * k[j, part]).sum()) / math.sqrt(width) for j in range(len(k))]
            total = sum(math.exp(each) for each in logits)
            joined += [
                sum(math.exp(logits[j]) / total * float(v[j, c]) for j in range(len(k)))
                for c in range(h * width, (h + 1) * width)
            ]
        rows.append(joined)
    return torch.tensor(rows) @ layer.out_proj.weight.T + layer.out_proj.bias


def test_boq_asks_its_queries_layer_by_layer() -> None:
    head, given = head_of("boq"), tokens(1)
    with torch.no_grad():
        encoded = head.norm(head.reduce(given.patches))  # type: ignore[operator]
        answers = []
        for bag in head.bags:  # type: ignore[union-attr]
            encoded = bag.encoder(encoded)
            queries = bag.queries[0]
            queries = bag.norm_among(queries + attention_by_loops(bag.among, queries, queries))
            answers.append(bag.norm_across(attention_by_loops(bag.across, queries, encoded[0])))
        stacked = torch.cat(answers)
        rows = [linear(head.mix, stacked[:, c].tolist()) for c in range(6)]  # type: ignore[arg-type]
        by_hand = torch.tensor(unit([each for row in rows for each in row]))
        torch.testing.assert_close(head([given]).embedding[0], by_hand, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("lpn", {"embedding_dim": 10, "rings": 4}, "rings = 4 must divide"),
        ("fsra", {"embedding_dim": 10, "regions": 3}, "must divide embedding_dim = 10"),
        ("salad", {"embedding_dim": 700}, "must equal embedding_dim = 700"),
        ("boq", {"heads": 5}, "must divide channels"),
        ("boq", {"rows": 3}, "rows \\* channels = 576"),
    ],
)
def test_widths_that_do_not_fit_are_refused(kind: str, settings: dict[str, int], words: str) -> None:
    with pytest.raises(SkyPartError, match=words):
        settings_class(kind)(**settings)
