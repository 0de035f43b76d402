"""Distillation from the CLS token of a frozen teacher."""

from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from skypart.losses.cosine import at_least_float32, paired_cosine
from skypart.losses.term import LossContext, LossTerm


class TeacherDistillationLoss(LossTerm):
    """Owns the projector phi(f) = LayerNorm(W f), embedding_dim -> teacher_dim."""

    name = "teacher"
    group = "distill"

    def __init__(self, embedding_dim: int = 768, teacher_dim: int = 768) -> None:
        super().__init__()
        self.project = nn.Linear(embedding_dim, teacher_dim, bias=False)
        self.norm = nn.LayerNorm(teacher_dim)

    @classmethod
    def build(cls, context: LossContext) -> Self:
        """The projector maps the embedding to the width of the teacher's CLS token."""
        return cls(context.widths["embedding"], context.widths["teacher"])

    def forward(self, embedding: Tensor, teacher: Tensor) -> Tensor:
        """Mean over images of MSE(phi f, LayerNorm(t)) + 1 - cos(phi f, t); scalar.

        embedding (B, D); teacher (B, T): the teacher's normed CLS token of the original images, detached.
        """
        student = at_least_float32(self.norm(self.project(embedding.to(self.project.weight.dtype))))
        teacher = at_least_float32(teacher.detach())
        error = (student - F.layer_norm(teacher, teacher.shape[-1:])).square().mean(-1)
        return (error + 1 - paired_cosine(student, teacher)).sum() / max(len(embedding), 1)
