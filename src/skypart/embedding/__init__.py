"""A model as the rest of the package sees it: images in, embeddings and patch tokens out, with any runtime."""

from skypart.embedding.interface import Embedder, Explanation, PatchTokens
from skypart.embedding.runtimes import load, load_fastest, register_runtime

__all__ = ["Embedder", "Explanation", "PatchTokens", "load", "load_fastest", "register_runtime"]
