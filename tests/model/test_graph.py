"""Graph attention against torch_geometric's, and the readout against plain loops."""

import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from skypart.model.heads.skypart.graph import GraphAttention, GraphReadout
from tests.model.builders import scramble

NODES, DIM, HEADS, WIDTH = 6, 10, 4, 8


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def oracle_of(layer: GraphAttention, dim: int) -> GATConv:
    """torch_geometric's layer with the same weights."""
    oracle = GATConv(dim, layer.width, heads=layer.heads, negative_slope=0.2, add_self_loops=False)
    oracle.lin.weight.data = layer.project.weight.data
    oracle.att_src.data = layer.source.data[None]
    oracle.att_dst.data = layer.target.data[None]
    oracle.bias.data = layer.bias.data
    return oracle


def complete(count: int) -> Tensor:
    """Edges of the fully connected graph with self-loops, (2, count * count)."""
    return torch.cartesian_prod(torch.arange(count), torch.arange(count)).T


def test_equal_to_torch_geometric_with_closed_nodes_removed() -> None:
    layer = GraphAttention(DIM, HEADS, WIDTH)
    scramble(layer, 1)
    oracle = oracle_of(layer, DIM)
    nodes = drawn(3, NODES, DIM)
    active = torch.tensor([[True] * 6, [True, False, True, True, False, False], [False] * 5 + [True]])
    with torch.no_grad():
        found = layer(nodes, active)
        for b in range(3):
            kept = active[b].nonzero()[:, 0]
            expected = oracle(nodes[b, kept], complete(len(kept)))
            torch.testing.assert_close(found[b, kept], expected, atol=1e-5, rtol=1e-5)


def test_closed_nodes_do_not_affect_the_others() -> None:
    layer = GraphAttention(DIM, HEADS, WIDTH)
    scramble(layer, 1)
    nodes = drawn(1, NODES, DIM)
    active = torch.tensor([[True, True, False, True, True, True]])
    before = layer(nodes, active)
    nodes[0, 2] += 100.0
    after = layer(nodes, active)
    others = [0, 1, 3, 4, 5]
    assert torch.equal(before[:, others], after[:, others])


def test_readout_is_a_salience_weighted_mean_of_two_layers() -> None:
    readout = GraphReadout(32, layers=2, heads=HEADS, out=20)
    scramble(readout, 2)
    descriptors, centroids = drawn(2, NODES, 32), drawn(2, NODES, 2, seed=1).sigmoid()
    active = torch.tensor([[True, True, False, True, True, False], [True] * 6])
    weight = drawn(2, NODES, seed=2).sigmoid() * active
    found = readout(descriptors, centroids, weight, active)
    first, second = readout.layers
    assert isinstance(first, GraphAttention) and isinstance(second, GraphAttention)
    for b in range(2):
        kept = active[b].nonzero()[:, 0]
        nodes = torch.cat([descriptors[b, kept], centroids[b, kept]], dim=1)
        nodes = oracle_of(first, 34)(nodes, complete(len(kept)))
        nodes = oracle_of(second, 32)(torch.nn.functional.elu(nodes), complete(len(kept)))
        mean = sum(weight[b, k] * nodes[i] for i, k in enumerate(kept)) / weight[b].sum()
        expected = readout.norm(readout.project(mean))
        torch.testing.assert_close(found[b], expected, atol=1e-5, rtol=1e-5)


def test_positions_matter() -> None:
    readout = GraphReadout(32, layers=2, heads=HEADS, out=20)
    scramble(readout, 2)
    descriptors, active = drawn(1, NODES, 32), torch.ones(1, NODES, dtype=torch.bool)
    places = drawn(1, NODES, 2, seed=1).sigmoid()
    weight = torch.ones(1, NODES)
    assert not torch.allclose(
        readout(descriptors, places, weight, active), readout(descriptors, places.flip(1), weight, active), atol=1e-3
    )


def test_the_order_of_prototypes_does_not_matter_to_the_graph() -> None:
    readout = GraphReadout(32, layers=2, heads=HEADS, out=20)
    scramble(readout, 2)
    descriptors, places = drawn(1, NODES, 32), drawn(1, NODES, 2, seed=1).sigmoid()
    weight, active = drawn(1, NODES, seed=2).sigmoid(), torch.tensor([[True, False, True, True, True, True]])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(
        readout(descriptors, places, weight, active),
        readout(descriptors[:, order], places[:, order], weight[:, order], active[:, order]),
        atol=1e-5,
        rtol=1e-5,
    )
