"""Tent (Wang et al. 2021): adapt a model to its test images by minimising entropy. For comparisons only."""

import copy

import torch
from torch import Tensor, nn

from skypart.embedding.interface import Inputs, Vectors
from skypart.errors import SkyPartError
from skypart.model.embedder import TorchEmbedder

TEMPERATURE = 0.07
"""Of the softmax over the gallery: that of InfoNCE in the default recipe."""
RATE, MOMENTUM = 1e-3, 0.9
"""Of SGD; our choice, not tuned."""
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)


class Tent:
    """A copy of a model that adapts while it embeds queries, batch by batch.

    Retrieval has no classes. Here they are the images of the gallery: a query belongs to gallery image g with the
    probability softmax(similarity / TEMPERATURE). Each batch takes one step of SGD on the scale and shift of all
    normalisation layers, down the mean entropy of its queries. Gallery embeddings stay those of the unadapted model.
    Running statistics of batch norms stay those of training, because a batch must not change its own embeddings.
    """

    def __init__(self, embedder: TorchEmbedder, gallery: Vectors, rate: float = RATE) -> None:
        self.device = embedder.device
        self.model = copy.deepcopy(embedder.model).eval()
        self.model.freeze(self.model.backbone_interface.depth)  # frozen blocks would pass no gradient
        self.model.requires_grad_(False)
        self.gallery = torch.from_numpy(gallery).to(self.device)
        norms = [module for module in self.model.modules() if isinstance(module, _NORMS)]
        self.parameters: list[Tensor] = [p.requires_grad_(True) for norm in norms for p in norm.parameters()]
        if not self.parameters:
            raise SkyPartError("Tent adapts normalisation layers, and this model has none; leave it out")
        self.optimiser = torch.optim.SGD(self.parameters, lr=rate, momentum=MOMENTUM)

    def embed_inputs(self, inputs: Inputs) -> Vectors:
        """Embeddings (n, dim) of preprocessed queries with the parameters before this batch's step, as Tent does it."""
        with torch.enable_grad():
            embedding: Tensor = self.model(torch.from_numpy(inputs).to(self.device)).embedding
            loss = gallery_entropy(embedding, self.gallery).mean()
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        vectors: Vectors = embedding.detach().cpu().numpy()
        return vectors


def gallery_entropy(query: Tensor, gallery: Tensor) -> Tensor:
    """(q,) entropy in nats of softmax(query @ gallery.T / TEMPERATURE) for unit rows (q, d) and (g, d)."""
    log_p = (query @ gallery.T / TEMPERATURE).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)
