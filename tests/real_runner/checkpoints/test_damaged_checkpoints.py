"""Whether a checkpoint will run: `simlab inspect` and the loader say the same of every damage, and never crash."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from damaged_checkpoints import DAMAGES, WEIGHTS, damaged_copies, whole_checkpoints
from depth import examples
from safetensors.torch import load_file, save_file

from simlab.errors import SimlabError
from simlab.real_runner.drafters.dense import block_logits
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.networks.drafter import load_drafter
from simlab.studies.inspect.inspect import inspect

NUM_FAST = examples(45, quick=12) * len(DAMAGES)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return whole_checkpoints(tmp_path_factory.mktemp("whole"))


def predicted(place: Path) -> tuple[bool, str]:
    """Whether inspect says that it will run, and why not."""
    try:
        found = inspect(str(place), progress=False).to_json()
    except SimlabError as error:
        return False, str(error)
    return found.get("will_run") is True, str(found.get("problem", found["kind"]))


@torch.inference_mode()
def ran(place: Path) -> tuple[bool, str]:
    """Whether it loads and drafts once for a target of the sizes it asks for, and why not."""
    try:
        drafter = load_drafter(place, torch.float32)
        config, generator = drafter.config, torch.Generator().manual_seed(0)
        row = torch.randn(1, config.hidden_size, generator=generator)
        head = torch.randn(config.hidden_size, 7, generator=generator)
        target: Any = SimpleNamespace(
            embedding=SimpleNamespace(weight=row.expand(config.vocab_size, -1)), logits=lambda hidden: hidden @ head
        )
        features = torch.randn(1, 9, len(config.target_layer_ids) * config.hidden_size, generator=generator)
        root, position = torch.tensor([0]), torch.tensor([9])
        logits = block_logits(drafter, target, root, position, drafter.context(features))[0]
        marginals = first_marginals(logits, CandidatesRead(3, entropies=True))
        assert marginals.depth == config.depth
    except SimlabError as error:
        return False, str(error)
    return True, ""


def disagreement(place: Path) -> str | None:
    """What is wrong with what the two say of a checkpoint; None: nothing."""
    said: dict[str, tuple[bool, str]] = {}
    for name, ask in (("inspect", predicted), ("loader", ran)):
        try:
            said[name] = ask(place)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            return f"{name} raised {type(error).__name__}: {str(error)[:200]}"
        if "\n" in said[name][1]:
            return f"{name} says more than a sentence: {said[name][1]!r}"
    return None if said["inspect"][0] == said["loader"][0] else f"they disagree: {said}"


def faults_of(wholes: dict[str, Path], folder: Path, seed: int, number: int) -> list[str]:
    found = ((told, disagreement(copy)) for told, copy in damaged_copies(wholes, folder, seed, number))
    return [f"{told}: {what}" for told, what in found if what is not None]


@pytest.mark.parametrize("name", ["plain", "unusual", "parts", "indexed", "speculators", "treeflash"])
def test_whole_checkpoints_run_and_are_said_to(wholes: dict[str, Path], name: str) -> None:
    assert predicted(wholes[name]) == (True, "None")
    assert ran(wholes[name]) == (True, "")
    if (wholes[name] / WEIGHTS).is_file():
        assert disagreement(wholes[name] / WEIGHTS) is None


def test_inspect_reads_weights_without_torch(wholes: dict[str, Path]) -> None:
    code = (
        "import sys; from simlab.studies.inspect.inspect import inspect; "
        "sys.exit(not inspect(sys.argv[1]).to_json()['will_run'] or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(wholes["unusual"])], check=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floating_dtypes_run(wholes: dict[str, Path], tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = load_file(wholes["plain"] / WEIGHTS)
    largest = torch.finfo(torch.float16).max if dtype != torch.bfloat16 else 65280.0
    tensors["norm.weight"][0] = -largest
    shutil.copytree(wholes["plain"], tmp_path / "copy")
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, tmp_path / "copy" / WEIGHTS)
    assert predicted(tmp_path / "copy") == (True, "None")
    assert ran(tmp_path / "copy") == (True, "")
    if dtype != torch.float16:
        tensors["norm.weight"][0] = 1.01 * largest
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, tmp_path / "copy" / WEIGHTS)
        assert "norm.weight" in predicted(tmp_path / "copy")[1]
        assert predicted(tmp_path / "copy") == ran(tmp_path / "copy")


def test_inspect_and_the_loader_agree_on_damage(wholes: dict[str, Path], tmp_path: Path) -> None:
    faults = faults_of(wholes, tmp_path, seed=0, number=NUM_FAST)
    assert not faults, "\n".join(faults)
