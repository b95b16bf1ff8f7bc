"""Checkpoints of LiLiCorr with random weights, in the released layout, and their scores candidate by candidate."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tiny_models import drafter_config

from simlab.arrays import Doubles
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.networks.lilicorr.config import lattice_from_json

TOP_K, EPS, NORM_EPS, SCALE = 4, 1e-3, 1e-6, 5.0
OWN = {
    "lilicorr_candidate_topk": TOP_K,
    "lilicorr_hidden_size": 12,
    "lilicorr_num_layers": 2,
    "lilicorr_num_heads": 2,
    "lilicorr_mlp_ratio": 1.5,
    "lilicorr_factor_dim": 6,
    "lilicorr_vector_eps": EPS,
    "lilicorr_logit_scale": SCALE,
}


def make_lattice(folder: Path, seed: int = 0, **own: object) -> Path:
    """A drafter and its head; ``own`` are other fields of ``dflash_config``, None leaves one out."""
    fields = config_to_json(drafter_config()) | {"architectures": ["LiLiCorrDraftModel"]}
    inner = fields["dflash_config"]
    assert isinstance(inner, dict)
    of_head = OWN | {name: one for name, one in own.items() if name in OWN}
    config = lattice_from_json(fields | {"dflash_config": inner | of_head})
    assert config is not None
    said = {name: one for name, one in (inner | OWN | own).items() if one is not None}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields | {"dflash_config": said}))
    shapes = dict(drafter_config().shapes()) | {f"lilicorr.{name}": shape for name, shape in config.shapes()}
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        around, spread = (1.0, 0.3) if "norm" in name and name.endswith("weight") else (0.0, 1.2 * shape[-1] ** -0.5)
        tensors[name] = around + spread * torch.randn(shape, generator=generator)
    save_file(tensors, folder / "model.safetensors")
    return folder


class Scores:
    """A lattice head by loops over its candidates."""

    def __init__(self, place: Path) -> None:
        stored = load_file(place / "model.safetensors").items()
        self.own = {name.removeprefix("lilicorr."): one.double().numpy() for name, one in stored}
        inner = json.loads((place / "config.json").read_text())["dflash_config"]
        self.heads, self.block = inner["lilicorr_num_heads"], 4

    def times(self, name: str, x: Doubles) -> Doubles:
        """A matrix with its bias."""
        made: Doubles = self.own[f"{name}.weight"] @ x + self.own[f"{name}.bias"]
        return made

    def normed(self, name: str, x: Doubles) -> Doubles:
        """The root-mean-square norm."""
        made: Doubles = self.own[f"{name}.weight"] * x / np.sqrt((x * x).mean() + NORM_EPS)
        return made

    def perceptron(self, name: str, x: Doubles) -> Doubles:
        """Two matrices and a SiLU."""
        return self.times(f"{name}.down_proj", _silu(self.times(f"{name}.up_proj", x)))

    def features(self, log_probs: Doubles, rank: int) -> Doubles:
        """What is read of a candidate beside its token, behind a layer norm."""
        one = log_probs[rank]
        x = np.array([one, np.exp(one), one - log_probs.max(), rank / (len(log_probs) - 1), float(rank == 0)])
        x = (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
        made: Doubles = x * self.own["feature_norm.weight"] + self.own["feature_norm.bias"]
        return made

    def attended(self, name: str, states: list[Doubles], slots: list[int]) -> list[Doubles]:
        """What each candidate gathers of all."""
        size = len(states[0]) // self.heads
        into = [self.own[f"{name}.in_proj_weight"] @ x + self.own[f"{name}.in_proj_bias"] for x in states]
        queries, keys, values = ([x.reshape(3, self.heads, size)[part] for x in into] for part in range(3))
        made = []
        for one, slot in enumerate(slots):
            mixed = []
            for head in range(self.heads):
                scores = np.array([queries[one][head] @ key[head] / np.sqrt(size) for key in keys])
                for other, there in enumerate(slots):
                    scores[other] += self.own["relative_slot_bias"][head, slot - there + self.block - 1]
                    scores[other] += self.own["same_slot_bias"][head] if slot == there else 0.0
                weights = np.exp(scores - scores.max())
                mixed.append(sum(w * value[head] for w, value in zip(weights / weights.sum(), values, strict=True)))
            made.append(self.times(f"{name}.out_proj", np.concatenate(mixed)))
        return made

    def of_lattice(
        self, embedded: Doubles, log_probs: Doubles, after: Doubles, anchor: Doubles
    ) -> tuple[Doubles, Doubles]:
        """The scores ``[K]`` and ``[D - 1, K, K]`` of one root."""
        depth, top_k = log_probs.shape
        places = [(slot, rank) for slot in range(depth) for rank in range(top_k)]
        states = []
        for slot, rank in places:
            token = embedded[slot, rank]
            x = self.times("token_proj", token) if "token_proj.weight" in self.own else token
            x = x + self.times("pass_hidden_proj", after[slot])
            x = x + self.perceptron("feature_mlp", self.features(log_probs[slot], rank))
            states.append(x + self.own["slot_embedding"][0, 0, slot, 0] + self.own["rank_embedding"][0, 0, 0, rank])
        for layer in (f"layers.{number}" for number in range(2)):
            normed = [self.normed(f"{layer}.attn_norm", x) for x in states]
            gathered = self.attended(f"{layer}.attn", normed, [slot for slot, _ in places])
            states = [x + one for x, one in zip(states, gathered, strict=True)]
            states = [x + self.perceptron(f"{layer}.mlp", self.normed(f"{layer}.mlp_norm", x)) for x in states]
        states = [self.normed("output_norm", x) for x in states]
        before = self.normed("anchor_norm", self.times("context_proj", anchor))
        factors = [_silu(self.times("factor_input_proj", np.concatenate([x, before, x * before]))) for x in states]
        start = _unit(self.times("anchor_out_head", before))
        out, into = ([_unit(self.times(name, one)) for one in factors] for name in ("out_head", "in_head"))
        first = np.array([SCALE * (start @ into[rank]) for rank in range(top_k)])
        pairs = np.zeros((depth - 1, top_k, top_k))
        for slot, above, below in np.ndindex(*pairs.shape):
            pairs[slot, above, below] = SCALE * (out[slot * top_k + above] @ into[(slot + 1) * top_k + below])
        return first, pairs


def _silu(x: Doubles) -> Doubles:
    made: Doubles = x / (1 + np.exp(-x))
    return made


def _unit(x: Doubles) -> Doubles:
    made: Doubles = x / max(np.sqrt((x * x).sum()), EPS)
    return made
