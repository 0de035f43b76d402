"""Tokens to parts to one embedding: backbones, the head, model files."""

from skypart.model.backbone import load_backbone
from skypart.model.embedder import Embedder, Explanation, load
from skypart.model.skypart import HeadConfig, SkyPart, SkyPartOutput
from skypart.model.storage import load_model, save_model
from skypart.model.vit import VisionTransformer, ViTConfig

__all__ = [
    "Embedder",
    "Explanation",
    "HeadConfig",
    "SkyPart",
    "SkyPartOutput",
    "ViTConfig",
    "VisionTransformer",
    "load",
    "load_backbone",
    "load_model",
    "save_model",
]
