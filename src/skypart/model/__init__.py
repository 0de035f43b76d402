"""Backbones, heads and model files."""

from skypart.embedding.interface import Explanation
from skypart.model.backbone import load_backbone
from skypart.model.embedder import Embedder, TorchEmbedder, load
from skypart.model.heads.skypart.head import HeadConfig, SkyPartOutput
from skypart.model.skypart import SkyPart
from skypart.model.storage import load_model, save_model
from skypart.model.vit import VisionTransformer, ViTConfig

__all__ = [
    "Embedder",
    "Explanation",
    "HeadConfig",
    "SkyPart",
    "SkyPartOutput",
    "TorchEmbedder",
    "ViTConfig",
    "VisionTransformer",
    "load",
    "load_backbone",
    "load_model",
    "save_model",
]
