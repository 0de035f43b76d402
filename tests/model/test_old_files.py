"""A model file written before there was a choice of heads loads, embeds and is saved as it was.

`before_heads.safetensors` is a tiny model in half precision; `before_heads.npy` its embeddings of two images. Both were
written by the code of commit fe9d9e3, the last one without `model/heads/`.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from skypart.model import SkyPart, load_model, save_model
from skypart.model.storage import read_header
from tests.model.builders import wave

FILE = Path(__file__).with_name("before_heads.safetensors")


def embed(model: SkyPart) -> torch.Tensor:
    """(2, 48) embeddings of an image of the native size and of a smaller one."""
    with torch.no_grad():
        return torch.cat([model(wave(size)).embedding for size in (56, 42)])


def test_the_file_is_of_the_old_form() -> None:
    assert "kind" not in read_header(FILE)["head"]
    assert not any(name.startswith("head.") for name in load_file(FILE))


def test_an_old_file_has_every_weight_bit_for_bit_and_embeds_as_the_old_code_did() -> None:
    model = load_model(FILE)
    state, stored = model.state_dict(), load_file(FILE)
    assert state.keys() == stored.keys()
    for name, tensor in stored.items():
        assert torch.equal(state[name], tensor.to(state[name].dtype)), name
    expected = np.load(FILE.with_suffix(".npy"))
    # with one thread on the processor that wrote them, equal to the last bit; others add up in another order
    np.testing.assert_allclose(embed(model).numpy(), expected, atol=1e-6, rtol=0)


def test_an_old_file_that_is_saved_again_embeds_bit_identically(tmp_path: Path) -> None:
    model = load_model(FILE)
    save_model(model, tmp_path / "again.safetensors", dtype="float16")
    assert torch.equal(embed(load_model(tmp_path / "again.safetensors")), embed(model))
    again, stored = load_file(tmp_path / "again.safetensors"), load_file(FILE)
    assert again.keys() == stored.keys() and all(torch.equal(again[name], stored[name]) for name in stored)
