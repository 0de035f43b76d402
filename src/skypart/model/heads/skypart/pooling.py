"""Part-aware pooling: concatenate the most salient parts."""

from torch import Tensor, nn


class PartPooling(nn.Module):
    """A two-layer MLP on the `parts` most salient descriptors, weighted by salience, in prototype order.

    Prototype order, unlike salience order, is the same in both views of a place.
    """

    def __init__(self, dim: int, parts: int, out: int) -> None:
        super().__init__()
        self.parts = parts
        self.mlp = nn.Sequential(nn.Linear(parts * dim, out), nn.LayerNorm(out), nn.GELU(), nn.Linear(out, out))

    def select(self, descriptors: Tensor, weight: Tensor, order: Tensor) -> Tensor:
        """(batch, parts * dim): the descriptors of the parts largest in `order`, each times its weight.

        descriptors: (batch, prototypes, dim); weight, order: (batch, prototypes).
        """
        chosen = order.topk(self.parts, dim=1).indices.sort(dim=1).values
        picked = (descriptors * weight[..., None]).gather(1, chosen[..., None].expand(-1, -1, descriptors.shape[-1]))
        return picked.flatten(1)

    def forward(self, selected: Tensor) -> Tensor:
        """Selected parts (batch, parts * dim) -> (batch, out)."""
        return self.mlp(selected)  # type: ignore[no-any-return]
