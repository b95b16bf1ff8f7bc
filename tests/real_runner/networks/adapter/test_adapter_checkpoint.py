"""Adapters on disk: PEFT's names and fields, what is saved is loaded, and what is refused."""

import json
from pathlib import Path

import pytest
import tiny_models
import torch
from random_adapter import make_adapter, random_adapter
from safetensors.torch import load_file, save_file

from simlab.errors import ModelError
from simlab.real_runner.networks.adapter.gated import load_adapter, save_adapter
from simlab.real_runner.networks.adapter.masked import load_drafter as load_masks
from simlab.real_runner.networks.drafter import Asked, load_drafter
from simlab.real_runner.targets.dumped_states import load_partial_target
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target

FILES = ["adapter_config.json", "adapter_model.safetensors"]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_target(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module")
def target(target_folder: Path) -> Target:
    return load_target(str(target_folder), torch.float32)


@pytest.fixture
def place(tmp_path: Path, target_folder: Path) -> Path:
    return make_adapter(tmp_path / "adapter", target_folder)


def test_what_is_saved_is_loaded(place: Path, target: Target, tmp_path: Path) -> None:
    assert sorted(path.name for path in place.iterdir()) == FILES
    found, expected = load_adapter(place, target), random_adapter(target)
    assert found.config == expected.config
    named = expected.state_dict()
    assert set(found.state_dict()) == set(named)
    assert all(torch.equal(tensor, named[name]) for name, tensor in found.state_dict().items())
    save_adapter(found, target.name, tmp_path / "again", torch.float32)
    assert all((place / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in FILES)


def test_names_and_fields_are_those_of_peft(place: Path, target: Target) -> None:
    fields = json.loads((place / "adapter_config.json").read_text())
    assert (fields["peft_type"], fields["task_type"], fields["r"], fields["lora_alpha"]) == ("LORA", "CAUSAL_LM", 4, 6)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert fields["target_modules"] == modules
    assert fields["simlab_gated"] is True
    assert fields["simlab"]["target_digest"] == target.digest
    tensors = load_file(place / "adapter_model.safetensors")
    hidden = tiny_models.HIDDEN_SIZE
    assert tensors["mask_embeddings"].shape == (3, hidden)
    assert tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].shape == (4, hidden)
    assert tensors["base_model.model.model.layers.3.mlp.down_proj.lora_B.weight"].shape == (hidden, 4)
    assert len(tensors) == 1 + 2 * len(modules) * tiny_models.NUM_LAYERS


def test_it_is_no_drafter_and_a_drafter_is_no_adapter(place: Path, tmp_path: Path, target: Target) -> None:
    with pytest.raises(ModelError, match="an adapter with which a target drafts for itself"):
        load_drafter(place, torch.float32)
    drafter = tiny_models.make_drafter(tmp_path / "drafter")
    with pytest.raises(ModelError, match="has no adapter"):
        load_adapter(drafter, target)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"r": 5}, "do not fit"),
        ({"r": 0}, "rank must be at least 1"),
        ({"lora_alpha": "much"}, "much"),
        ({"target_modules": ["q_proj"]}, "q_proj"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "biases"),
        ({"simlab": {}}, "whose it is"),
        ({"simlab_gated": False}, "changed at all rows it is another model"),
    ],
)
def test_fields_that_cannot_be_are_refused(place: Path, target: Target, changed: dict[str, object], said: str) -> None:
    path = place / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ModelError, match=said):
        load_adapter(place, target)


def test_tensors_that_are_missing_foreign_or_of_another_shape_are_refused(place: Path, target: Target) -> None:
    path = place / "adapter_model.safetensors"
    tensors = load_file(path)
    name = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"
    cases = {
        "lacks": {key: tensor for key, tensor in tensors.items() if key != name},
        "holds, beside its own tensors": tensors | {"other.weight": torch.zeros(1)},
        "do not fit": tensors | {"mask_embeddings": torch.zeros(2, tiny_models.HIDDEN_SIZE)},
        "are not of an adapter of": tensors | {name: torch.zeros(4, 5)},
        "no number": tensors | {name: torch.full_like(tensors[name], torch.nan)},
    }
    for said, wrong in cases.items():
        save_file(wrong, path)
        with pytest.raises(ModelError, match=said):
            load_adapter(place, target)


def test_a_target_without_its_layers_cannot_draft(place: Path, target_folder: Path) -> None:
    asked = Asked(place, torch.float32, "cpu", None, "eager", is_mapped=False, block=None)
    with pytest.raises(ModelError, match="passes that were made elsewhere"):
        load_masks(asked)(load_partial_target(str(target_folder), torch.float32))
