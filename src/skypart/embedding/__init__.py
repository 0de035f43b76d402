"""The model as the rest of the program sees it: images in, embeddings and patch tokens out, by any runtime."""

from skypart.embedding.interface import Embedder, Explanation, PatchTokens
from skypart.embedding.runtimes import load

__all__ = ["Embedder", "Explanation", "PatchTokens", "load"]
