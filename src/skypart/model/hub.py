"""`save_pretrained`, `from_pretrained` and `push_to_hub`, as in other Hugging Face libraries."""

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from huggingface_hub import PyTorchModelHubMixin

if TYPE_CHECKING:
    from skypart.model.skypart import SkyPart

_CARD = files("skypart.model").joinpath("model_card.md").read_text(encoding="utf-8")


class HubMixin(
    PyTorchModelHubMixin,
    library_name="skypart",
    license="other",  # weights inherit the terms of their backbone and training data
    pipeline_tag="image-feature-extraction",
    tags=["geo-localization", "drone", "satellite", "image-retrieval"],
    model_card_template=_CARD,
):
    """Stores our safetensors file, which holds head, backbone, recipe and provenance, beside config.json."""

    def _save_pretrained(self, save_directory: Path) -> None:
        from skypart.model.storage import save_model

        save_model(cast("SkyPart", self), save_directory / "model.safetensors")

    def generate_model_card(self, *args: Any, **kwargs: Any) -> Any:
        """The model card, filled with this model's recipe and provenance."""
        from skypart.model.storage import card_fields

        model = cast("SkyPart", self)
        card = super().generate_model_card(*args, **(card_fields(model) | kwargs))
        if "licence" in model.provenance:
            card.data["license"] = model.provenance["licence"]
        return card

    def push_to_hub(self, repo_id: str, *, model_card_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Upload the model and a card with its hub name; see `ModelHubMixin.push_to_hub`."""
        named = {"repo_id": repo_id, "title": repo_id.rpartition("/")[2]} | (model_card_kwargs or {})
        return str(super().push_to_hub(repo_id, model_card_kwargs=named, **kwargs))

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        map_location: str = "cpu",
        **_: Any,
    ) -> "SkyPart":
        from huggingface_hub import hf_hub_download

        from skypart.model.storage import load_model

        folder = Path(model_id)
        if folder.is_dir():
            file = folder / "model.safetensors"
        else:
            file = Path(
                hf_hub_download(
                    model_id,
                    "model.safetensors",
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                )
            )
        return load_model(file).to(map_location)
