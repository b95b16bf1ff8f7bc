"""TreeFlash checkpoints: as released, with no head, and a head alone; what is damaged or another's is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import json_of, output_of
from safetensors.torch import load_file, save_file
from tiny_models import HIDDEN_SIZE, drafter_config, make_drafter
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, load_head, save_head

INNER = drafter_config().intermediate_size


def head_tensors() -> dict[str, Tensor]:
    """Random tensors under the names of the released class."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"ug.weight": (2 * INNER, 2 * HIDDEN_SIZE), "ug.bias": (2 * INNER,)}
    shapes |= {"d.weight": (HIDDEN_SIZE, INNER), "norm.weight": (HIDDEN_SIZE,)}
    return {f"ar_approximation.{name}": torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def released(folder: Path, *, head: bool = True, **changes: Any) -> Path:  # noqa: ANN401 - JSON
    """A checkpoint in the released layout, with the weights of `make_drafter`."""
    make_drafter(folder)
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    fields |= {"architectures": ["TreeFlashDraftModel"]}
    fields |= {"treeflash_config": {"ar_approximation": "swiglu" if head else None, "candidate_tokens": 64}}
    path.write_text(json.dumps(fields | changes))
    tensors = {f"model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors | (head_tensors() if head else {}), folder / "model.safetensors")
    return folder


def loaded(place: Path, drafter: Path) -> TreeFlashHead:
    own = load_drafter(drafter, torch.float32)
    return load_head(place, own, checkpoint_digest(drafter), torch.float32)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A drafter, and a head for it."""
    folder = tmp_path_factory.mktemp("alone")
    drafter = make_drafter(folder / "drafter")
    torch.manual_seed(1)
    save_head(TreeFlashHead(HIDDEN_SIZE, 12), folder / "head", checkpoint_digest(drafter), torch.float32)
    return drafter, folder / "head"


def said_of(place: Path) -> dict[str, Any]:
    return json_of("inspect", place, "--json")


def test_a_released_checkpoint_is_a_drafter_and_its_head(tmp_path: Path) -> None:
    plain, path = make_drafter(tmp_path / "plain"), released(tmp_path / "released")
    own, other = (load_drafter(folder, torch.float32).state_dict() for folder in (plain, path))
    assert own.keys() == other.keys()
    assert all(torch.equal(own[name], other[name]) for name in own)
    head = loaded(path, path)
    assert (head.hidden_size, head.inner_size) == (HIDDEN_SIZE, INNER)
    for name, tensor in head_tensors().items():
        assert torch.equal(head.state_dict()[name.removeprefix("ar_approximation.")], tensor)
    assert not head.training
    said = said_of(path)
    assert (said["format"], said["will_run"]) == ("treeflash", True)
    assert said["config"]["block_size"] == 4
    shown = output_of("inspect", path)
    assert "TreeFlash, as its authors release it" in shown
    assert f"{HIDDEN_SIZE} wide, {INNER} inside" in shown


def test_without_an_approximation_it_is_a_plain_drafter(tmp_path: Path) -> None:
    path = released(tmp_path / "released", head=False)
    assert isinstance(load_drafter(path, torch.float32), DFlashDrafter)
    assert said_of(path)["will_run"] is True
    with pytest.raises(ModelError, match="it is a drafter alone"):
        loaded(path, path)
    with pytest.raises(ModelError, match="it is a drafter alone"):
        loaded(make_drafter(tmp_path / "plain"), path)


def test_a_released_head_belongs_to_the_drafter_beside_it(tmp_path: Path) -> None:
    other, path = make_drafter(tmp_path / "other", seed=4), released(tmp_path / "released")
    with pytest.raises(ModelError, match="belongs to the drafter beside it"):
        loaded(path, other)


def test_a_head_alone_comes_back(alone: tuple[Path, Path]) -> None:
    drafter, place = alone
    head = loaded(place, drafter)
    torch.manual_seed(1)
    for name, tensor in TreeFlashHead(HIDDEN_SIZE, 12).state_dict().items():
        assert torch.equal(head.state_dict()[name], tensor)
    assert {path.name for path in place.iterdir()} == {"config.json", "model.safetensors"}
    fields = json.loads((place / "config.json").read_text())
    assert fields["simlab_extends"] == checkpoint_digest(drafter)
    said = said_of(place)
    assert (said["format"], said["will_run"], said["config"]) == ("treeflash", True, None)
    shown = output_of("inspect", place)
    assert "a head alone" in shown
    assert checkpoint_digest(drafter) in shown


def test_a_head_of_another_drafter_is_refused(alone: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_drafter(tmp_path / "other", seed=4)
    with pytest.raises(ModelError, match="or train a head for this one") as caught:
        loaded(alone[1], other)
    assert "\n" not in str(caught.value)
    wide = TreeFlashHead(HIDDEN_SIZE + 1, 12)
    save_head(wide, tmp_path / "wide", checkpoint_digest(other))
    with pytest.raises(ModelError, match=f"is {HIDDEN_SIZE + 1} wide"):
        loaded(tmp_path / "wide", other)


def without(name: str) -> dict[str, Tensor]:
    return {other: tensor for other, tensor in head_tensors().items() if not other.endswith(name)}


DAMAGES: dict[str, tuple[dict[str, Tensor], str]] = {
    "lacks": (without("ug.bias"), "lacks ug.bias"),
    "foreign": (head_tensors() | {"ar_approximation.q.weight": torch.zeros(2)}, "holds, beside its own tensors, q.w"),
    "shape": (without("d.weight") | {"ar_approximation.d.weight": torch.zeros(3, 3)}, "do not fit"),
    "no number": (without("ug.bias") | {"ar_approximation.ug.bias": torch.full((2 * INNER,), torch.nan)}, "no number"),
    "no prefix": (head_tensors() | {"fc.weight": torch.zeros(2)}, "names that begin with"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["released", "alone"])
def test_damage_is_refused_and_predicted(damage: str, kind: str, tmp_path: Path) -> None:
    tensors, said = DAMAGES[damage]
    path = released(tmp_path / "place")
    drafter = path if kind == "released" else make_drafter(tmp_path / "drafter")
    of_drafter = load_file(path / "model.safetensors")
    if kind == "alone":
        save_head(TreeFlashHead(HIDDEN_SIZE, INNER), tmp_path / "place", checkpoint_digest(drafter))
        of_drafter = {}
    kept = {name: tensor for name, tensor in of_drafter.items() if name.startswith("model.")}
    save_file(kept | tensors, path / "model.safetensors")
    own = DFlashDrafter(drafter_config())
    with pytest.raises(ModelError, match=said) as caught:
        load_head(path, own, checkpoint_digest(drafter), torch.float32)
    found = said_of(path)
    assert (found["will_run"], found["problem"]) == (False, str(caught.value))
    if kind == "released":
        with pytest.raises(ModelError, match=said):
            load_drafter(path, torch.float32)


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"treeflash_config": {"ar_approximation": "gru"}}, "a head of the kind 'gru'; simlab runs swiglu"),
    "no kind of a head": ({"treeflash_config": {}, "simlab_extends": "ab"}, "so it is of none"),
    "no digest": ({"simlab_extends": 7}, "where a digest belongs"),
    "no width": ({"hidden_size": None}, "where a whole number belongs"),
    "no inside": ({"intermediate_size": 0}, "a head's inner_size must be at least 1"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    changes, said = CONFIGS[name]
    path = released(tmp_path / "released", **changes)
    with pytest.raises(ModelError, match=said):
        loaded(path, make_drafter(tmp_path / "drafter"))
    assert said in said_of(path)["problem"]
