"""SGLang's own heads on a block drafter, loaded by path out of its wheel; a process of its own, for its stubs.

    python tests/helpers/sglang_heads.py KIND FOLDER IN.safetensors OUT.safetensors

FOLDER holds what the wheel has; IN the weights below ``head.``, inputs below ``in.``, and its fields of ``config.json``
in the metadata. What the modules import beside torch is replaced by stand-ins: plain linear layers and norms, and
names that are never called.
"""

import importlib.util
import json
import subprocess
import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from engine_wheels import SGLANG, wheel_files
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class Linear(nn.Linear):
    """In place of a layer that knows several devices."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, quant_config: object = None, prefix: str = ""
    ) -> None:
        super().__init__(inputs, outputs, bias)
        self.input_size = inputs

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401
        """The product, and no bias that is left over."""
        return super().forward(x), None


class Norm(nn.Module):
    """In place of a fused kernel."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """The root-mean-square norm of the last axis."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Nothing:
    """Any class, value or function that is imported and not used."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object, **__: object) -> "Nothing":
        return self

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __bool__(self) -> bool:
        return False


class Struct:
    """In place of msgspec's, which is not needed beside the engine."""

    def __init_subclass__(cls, **_: object) -> None:
        pass

    def __init__(self, **fields: object) -> None:
        vars(self).update(fields)


USED: dict[str, object] = {
    "Struct": Struct,
    "ReplicatedLinear": Linear,
    "RMSNorm": Norm,
    "DFlashDraftModel": type("DFlashDraftModel", (nn.Module,), {}),
    "add_prefix": lambda name, prefix: f"{prefix}.{name}",
    "MAX_FUSED_CANDIDATE_TOPK": 16,
    "_get_dflash_config": lambda config: config.dflash_config,
}


def used_or_nothing(name: str) -> object:
    """What stands in for a name."""
    return USED.get(name, Nothing())


class StandIns(MetaPathFinder, Loader):
    """Modules of the engine, each of which has every name."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Any module of the engine that is not loaded yet."""
        is_absent = name.split(".", maxsplit=1)[0] in ("sglang", "msgspec")
        return ModuleSpec(name, self, is_package=True) if is_absent else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """A module that finds all that is asked for."""
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = used_or_nothing
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it as it is."""


def by_path(folder: str, name: str) -> Any:  # noqa: ANN401
    """A module of the engine itself."""
    spec = importlib.util.spec_from_file_location(name, Path(folder) / (name.replace(".", "/") + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def dspark(
    folder: str, config: SimpleNamespace, head: dict[str, Tensor], given: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The chain ``[N, D]``, its logits ``[N, D, V]``, and those below other tokens ``[N, D - 1, M, V]``."""
    markov = by_path(folder, "sglang.srt.models.dspark").build_markov_head(config)
    markov.load_state_dict(head)
    base, after, above = given["base"], given["after"], given["roots"]
    chain, laws = [], []
    for slot in range(base.shape[1]):
        bias, _ = markov.step_bias(above, hidden_states=after[:, slot], state=None)
        laws.append(base[:, slot] + bias)
        above = laws[-1].argmax(-1)
        chain.append(above)
    previous = given["previous"]
    states = after[:, 1:, None].expand(-1, -1, previous.shape[2], -1)
    bias, _ = markov.step_bias(previous, hidden_states=states, state=None)
    return {"chain": torch.stack(chain, 1), "laws": torch.stack(laws, 1), "rows": base[:, 1:, None] + bias}


def lilicorr(
    folder: str, config: SimpleNamespace, head: dict[str, Tensor], given: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The scores ``[N, K]`` and ``[N, D - 1, K, K]``, and the ranks ``[N, D]`` of the chain along them."""
    own = by_path(folder, "sglang.srt.speculative.lilicorr_utils").parse_lilicorr_draft_config(draft_hf_config=config)
    sizes = {name: getattr(config, name) for name in ("block_size", "rms_norm_eps")}
    made = by_path(folder, "sglang.srt.models.lilicorr").LiLiCorrHead(
        model_hidden_size=config.hidden_size, config=own, **sizes
    )
    made.load_state_dict(head)
    made.materialize_inference_buffers(torch.device("cpu"), torch.float32)
    first, pairs = made.score(
        token_embeddings=given["embedded"][:, None],
        candidate_log_probs=given["log_probs"][:, None],
        pass_hidden=given["after"][:, None],
        anchor_hidden=given["anchor"][:, None],
        anchor_valid=torch.ones(len(given["anchor"]), 1, dtype=torch.bool),
    )
    first, pairs = (one[:, 0] for one in made.log_factors(first, pairs))
    chain = [first.argmax(-1)]
    for slot in range(pairs.shape[1]):
        chain.append(pairs[torch.arange(len(pairs)), slot, chain[-1]].argmax(-1))
    return {"first": first, "pairs": pairs, "chain": torch.stack(chain, 1)}


def run(
    folder: Path, kind: str, config: dict[str, object], head: dict[str, Tensor], given: dict[str, Tensor]
) -> dict[str, Tensor]:
    """What a head of SGLang's makes of some inputs, in a process of its own; skipped where its wheel cannot be had."""
    wheels = wheel_files(folder, (SGLANG,), ("sglang/srt/models", "sglang/srt/speculative"))
    inputs, out = folder / "in.safetensors", folder / "out.safetensors"
    named = {f"head.{name}": one for name, one in head.items()} | {f"in.{name}": one for name, one in given.items()}
    save_file({name: one.contiguous() for name, one in named.items()}, inputs, {"config": json.dumps(config)})
    subprocess.run([sys.executable, __file__, kind, str(wheels), str(inputs), str(out)], check=True)
    return load_file(out)


def main(kind: str, folder: str, given: str, out: str) -> None:
    """Run the head of a kind."""
    sys.meta_path.insert(0, StandIns())
    with safe_open(given, "pt") as file:  # type: ignore[no-untyped-call, unused-ignore]
        config = SimpleNamespace(**json.loads(file.metadata()["config"]))
    tensors = load_file(given)
    parts = [
        {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
        for prefix in ("head.", "in.")
    ]
    with torch.inference_mode():
        made = {"dspark": dspark, "lilicorr": lilicorr}[kind](folder, config, *parts)
        save_file({name: one.contiguous() for name, one in made.items()}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
