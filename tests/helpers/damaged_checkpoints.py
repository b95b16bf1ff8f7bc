"""Tiny drafter checkpoints, whole and damaged in many ways; the same seed makes the same damage."""

import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from damage_files import changed_bytes, damage_bytes, damage_file, damage_folder
from damage_json import damage_json
from safetensors.torch import load_file, save_file
from tiny_models import HIDDEN_SIZE, MASK_TOKEN_ID, VOCAB_SIZE, drafter_config
from torch import Tensor

from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import save_drafter
from simlab.real_runner.networks.treeflash.head import TreeFlashHead

Damage: TypeAlias = Callable[[Path, random.Random], str]
"""Damages the checkpoint in a folder and says how."""

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
OWN_TOKENS = 40

VALUES: tuple[object, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    3,
    7,
    1 << 31,
    1 << 63,
    10**30,
    10**400,
    -0.5,
    0.5,
    3.0,
    1e-300,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "4",
    "two\nlines",
    [],
    [[]],
    [None, {}],
    [0, 1, 2],
    [10**30],
    {},
    {"a": [1]},
)
SHAPES: tuple[object, ...] = ([], [0], [1], [-1], [1.5], ["a"], [True], None, 7, [1 << 70], [1 << 40, 1 << 40])
DTYPES: tuple[object, ...] = (
    "F64",
    "F32",
    "F16",
    "BF16",
    "I64",
    "I32",
    "U8",
    "BOOL",
    "F8_E4M3",
    "F4",
    "f32",
    "",
    None,
    3,
)


def whole_checkpoints(folder: Path) -> dict[str, Path]:
    """One of each kind: plain, with all that z-lab's layout can say, in parts, with an index, of the other layouts."""
    torch.manual_seed(0)
    made = {name: folder / name for name in ("plain", "unusual", "parts", "indexed", "speculators", "treeflash")}
    save_drafter(DFlashDrafter(drafter_config()), made["plain"], torch.float32)
    tensors = load_file(made["plain"] / WEIGHTS)
    fields = json.loads((made["plain"] / CONFIG).read_text())
    own = {"embed_tokens.weight": torch.randn(VOCAB_SIZE, HIDDEN_SIZE), "lm_head.weight": torch.randn(VOCAB_SIZE, 32)}
    scales = {"final_logit_softcapping": 30.0, "output_multiplier": 2.0, "input_embedding_scale": 0.5}
    windows = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 5}
    _write(made["unusual"], fields | scales | windows, {WEIGHTS: tensors | own})
    names = sorted(tensors)
    parts = [{name: tensors[name] for name in some} for some in (names[:9], names[9:])]
    files = {f"model-{number:05}-of-00002.safetensors": part for number, part in enumerate(parts, 1)}
    _write(made["parts"], fields, files)
    listed = {f"shard-{number}.safetensors": part for number, part in enumerate(parts)}
    _write(made["indexed"], fields, listed)
    placed = {name: file for file, part in listed.items() for name in part}
    (made["indexed"] / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    ids = torch.arange(OWN_TOKENS) * 2 + 1
    mask = torch.zeros(VOCAB_SIZE, dtype=torch.bool)
    mask[ids] = True
    reduced = {
        "d2t": ids - torch.arange(OWN_TOKENS),
        "t2d": mask,
        "lm_head.weight": torch.randn(OWN_TOKENS, HIDDEN_SIZE),
    }
    _write(
        made["speculators"], speculators_fields(fields) | {"draft_vocab_size": OWN_TOKENS}, {WEIGHTS: tensors | reduced}
    )
    below = {f"model.{name}": tensor for name, tensor in tensors.items()}
    head = {f"ar_approximation.{name}": one for name, one in TreeFlashHead(HIDDEN_SIZE, 40).state_dict().items()}
    named = {"architectures": ["TreeFlashDraftModel"], "treeflash_config": {"ar_approximation": "swiglu"}}
    _write(made["treeflash"], fields | named, {WEIGHTS: below | head})
    return made


def _write(folder: Path, fields: dict[str, Any], files: dict[str, dict[str, Tensor]]) -> None:
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(fields))
    for name, tensors in files.items():
        save_file(tensors, folder / name)


def speculators_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """What the other format says of a drafter, by its fields in z-lab's."""
    sizes = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    others = ("head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings", "layer_types", "attention_bias")
    layers = {name: fields[name] for name in sizes + others}
    return {
        "speculators_model_type": "dflash",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "a target"},
        },
        "transformer_layer_config": {"model_type": "qwen3", "hidden_act": "silu", "rope_theta": 1e4, **layers},
        "aux_hidden_state_layer_ids": [1, 2, 3],
        "block_size": 4,
        "mask_token_id": MASK_TOKEN_ID,
        "draft_vocab_size": VOCAB_SIZE,
        "target_hidden_size": HIDDEN_SIZE,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
    }


def damaged_copies(wholes: dict[str, Path], folder: Path, seed: int, number: int) -> Iterator[tuple[str, Path]]:
    """So many damaged checkpoints, each in words and in a folder that is gone when the next is made."""
    kinds = list(DAMAGES)
    for index in range(number):
        rng = random.Random(f"{seed} {index}")
        whole = rng.choice(sorted(wholes))
        copy = folder / f"{whole}-{index}"
        shutil.copytree(wholes[whole], copy)
        told = DAMAGES[kinds[index % len(kinds)]](copy, rng)
        yield f"{index}: {whole}, {told}", copy
        shutil.rmtree(copy)


def _a_file(folder: Path, rng: random.Random, suffix: str = ".safetensors") -> Path:
    return rng.choice(sorted(path for path in folder.iterdir() if path.suffix == suffix))


def _fields(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return found


def _inner(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The configuration or, as often, one of the objects in it."""
    inside = [value for value in fields.values() if isinstance(value, dict)]
    return rng.choice([fields, fields, *inside]) if rng.random() < 0.8 or not inside else rng.choice(inside)


ADDED = (
    "is_causal",
    "draft_vocab_size",
    "rope_parameters",
    "rope_scaling",
    "attention_mode",
    "final_logit_softcapping",
    "output_multiplier",
    "input_embedding_scale",
    "max_window_layers",
    "use_sliding_window",
    "sliding_window",
    "layer_types",
    "layer_ids",
    "head_dim",
    "architectures",
    "speculators_model_type",
    "markov_rank",
    "num_key_value_heads",
    "model_type",
)


def add_field(folder: Path, rng: random.Random) -> str:
    fields = _fields(folder)
    inner = _inner(fields, rng)
    name, value = rng.choice(ADDED), rng.choice(VALUES)
    inner[name] = value
    (folder / CONFIG).write_text(json.dumps(fields))
    return f"added {name}={value!r}"[:80]


NUMBERS = (
    "rms_norm_eps",
    "rope_theta",
    "output_multiplier",
    "input_embedding_scale",
    "final_logit_softcapping",
    "block_size",
)


def change_number(folder: Path, rng: random.Random) -> str:
    """A number that no tensor's shape depends on."""
    fields, name = _fields(folder), rng.choice(NUMBERS)
    value = rng.choice([one for one in VALUES if isinstance(one, int | float)])
    fields[name] = value
    layers = fields.get("transformer_layer_config")
    if isinstance(layers, dict) and name in NUMBERS[:2]:
        layers[name] = value
    (folder / CONFIG).write_text(json.dumps(fields))
    return f"{name}={value!r}"[:80]


def _split(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _join(path: Path, header: bytes, rest: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + rest)


def change_header(folder: Path, rng: random.Random) -> str:
    """One entry of a header, the bytes of the tensors as they were."""
    path = _a_file(folder, rng)
    header, rest = _split(path)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    entry = header[name]
    how = rng.choice(["shape", "dtype", "offsets", "order", "key", "gone", "renamed", "kind", "more", "alike"])
    if how == "shape":
        entry["shape"] = rng.choice([*SHAPES, entry["shape"][::-1], [*entry["shape"], 1], [1, *entry["shape"]]])
    elif how == "dtype":
        entry["dtype"] = rng.choice(DTYPES)
    elif how == "offsets":
        low, high = entry["data_offsets"]
        others = ([high, low], [low, low], [low + 4, high], [low, high + 4], [-4, high], [0, len(rest)], [low], None)
        entry["data_offsets"] = rng.choice([*others, [float(low), float(high)], [str(low), str(high)], [low, 1 << 70]])
    elif how == "order":
        other = rng.choice(sorted(set(header) - {"__metadata__"}))
        entry["data_offsets"], header[other]["data_offsets"] = header[other]["data_offsets"], entry["data_offsets"]
    elif how == "key":
        del entry[rng.choice(sorted(entry))]
    elif how == "gone":
        del header[name]
    elif how == "renamed":
        header[rng.choice(["more.weight", "markov_head.weight", "d2t", "t2d", "verifier_norm.weight"])] = header.pop(
            name
        )
    elif how == "kind":
        header[name] = rng.choice([None, [], "F32", 3])
    elif how == "more":
        entry["more"] = rng.choice(VALUES)
    else:
        header["more.weight"] = entry
    _join(path, json.dumps(header).encode(), rest)
    return f"header of {path.name}: {name} {how} {json.dumps(header.get(name))}"[:160]


def change_header_text(folder: Path, rng: random.Random) -> str:
    """The JSON of a header as a whole."""
    path = _a_file(folder, rng)
    header, rest = _split(path)
    if rng.random() < 0.25:
        text, note = changed_bytes(json.dumps(header).encode(), rng)
    else:
        changed, note = damage_json(json.dumps(header), rng)
        text = changed.encode("utf-8", "surrogatepass")
    _join(path, text, rest)
    return f"header of {path.name}: {note}"


def change_tensor(folder: Path, rng: random.Random) -> str:
    """A tensor is written anew, as safetensors writes it: of another shape, dtype or content, or not at all."""
    path = _a_file(folder, rng)
    tensors = load_file(path)
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    how = rng.choice(["gone", "turned", "longer", "flat", "empty", "dtype", "value", "value", "more", "all"])
    if how in ("gone", "turned", "longer", "flat", "empty"):
        del tensors[name]
        shaped = {
            "turned": tensor.t() if tensor.dim() == 2 else tensor[None],
            "longer": torch.cat([tensor, tensor]),
            "flat": tensor.flatten(),
            "empty": tensor[:0],
        }
        tensors |= {} if how == "gone" else {name: shaped[how].contiguous()}
    elif how == "dtype":
        kinds = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn)
        kind = rng.choice(kinds)
        tensors[name], how = tensor.to(torch.float32).to(kind), f"as {kind}"
    elif how == "value":
        value = rng.choice([float("nan"), float("inf"), 1e38, -3e38, 1e30, 0.0, -1.0, 7.0, 1e4])
        how = f"holds {value}"
        if tensor.is_floating_point():
            tensor.view(-1)[rng.randrange(tensor.numel())] = value
        else:
            tensor.view(-1)[rng.randrange(tensor.numel())] = rng.choice([0, 1, -1, 5, 1000])
    elif how == "more":
        added = rng.choice(
            ["more.weight", "embed_tokens.weight", "lm_head.weight", "d2t", "t2d", "verifier_norm.weight"]
        )
        how = f"beside {added}"
        tensors[added] = rng.choice(
            [tensor.clone(), torch.randn(VOCAB_SIZE, HIDDEN_SIZE), torch.zeros(VOCAB_SIZE, dtype=torch.int64)]
        )
    else:
        value = rng.choice([float("nan"), 0.0, 1e20, -1.0]) if tensor.is_floating_point() else rng.choice([0, -1])
        how = f"is all {value}"
        tensors[name] = torch.full_like(tensor, value)
    save_file(tensors, path)
    return f"{path.name}: {name} {how}"


def change_index(folder: Path, rng: random.Random) -> str:
    """The index, of which a whole checkpoint of another kind gets one."""
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    if WEIGHTS in shards and rng.random() < 0.8:
        (folder / WEIGHTS).rename(folder / "shard.safetensors")
        shards = ["shard.safetensors"]
    placed: dict[str, Any] = {name: file for file in shards for name in load_file(folder / file)}
    name = rng.choice(sorted(placed))
    first = folder / shards[0]
    how = rng.choice(
        ["none", "list", "empty", "outside", "other kind", "number", "long", "NUL", "lone", "missing", "twice"]
    )
    values: dict[str, object] = {
        "outside": f"../{folder.name}/{shards[0]}",
        "other kind": "model.bin",
        "number": 7,
        "long": "a" * 300 + ".safetensors",
        "NUL": "a\0.safetensors",
        "lone": "\ud800.safetensors",
        "missing": "gone.safetensors",
    }
    written: object = {"weight_map": {**placed, name: values.get(how, placed[name])}}
    if how == "twice":
        save_file({name: load_file(folder / placed[name])[name]}, folder / "again.safetensors")
        written = {"weight_map": {**placed, "more": "again.safetensors"}}
    written = {"none": {}, "list": {"weight_map": sorted(placed)}, "empty": {"weight_map": {}}}.get(how, written)
    (folder / INDEX).write_text(json.dumps(written))
    if rng.random() < 0.1:
        (folder / INDEX).write_text(json.dumps({"weight_map": placed}))
        first.unlink()
        first.mkdir()
        how = "a shard is a folder"
    return f"index: {how}"


DAMAGES: dict[str, Damage] = {
    "a value of the fields": lambda folder, rng: damage_file(folder / CONFIG, rng),
    "a JSON file": lambda folder, rng: damage_file(_a_file(folder, rng, ".json"), rng),
    "a file": damage_folder,
    "bytes of weights": lambda folder, rng: damage_bytes(_a_file(folder, rng), rng),
    "add field": add_field,
    "change number": change_number,
    "change header": change_header,
    "change header text": change_header_text,
    "change tensor": change_tensor,
    "change index": change_index,
}
