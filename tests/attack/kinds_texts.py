"""Prompt files, benchmarks, texts to train on; drafters, configurations and training runs of tiny models."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind
from damage_bytes import damage_bytes
from damage_json import damage_json, damage_json_lines
from damage_parquet import damage_parquet

_MODELS = ("--target", "models/target", "--draft", "models/drafter")
_FEW = ("--max-new-tokens", "4", "--limit", "2", "--min-width", "8", "--exact-budget", "8")


def _record(prompts: str) -> Command:
    words = ("record", *_MODELS, "--prompts", prompts, "--out", "out/trace", *_FEW)
    return Command(words, ("out/trace",), figured=False)


def _lines(name: str) -> Callable[[Path, Random], Damage]:
    """Damage to JSON lines whose content is a person's own: what can be read may be meant."""

    def damage(folder: Path, chance: Random) -> Damage:
        if chance.random() < 0.2:
            return damage_bytes(folder / name, chance, possible=True)
        return damage_json_lines(folder / name, chance, possible=True)

    return damage


_STRANGE_TEXTS = ("", "x", " ", "\\u0000", "\\ud800", "\\u001b[2J", "\\u202e", "a" * 200_000, "<|im_end|>", "{{ 1 }}")


def _prompts(folder: Path, chance: Random) -> Damage:
    path = folder / "models/more.jsonl"
    if chance.random() < 0.5:
        return _lines("models/more.jsonl")(folder, chance)
    text = chance.choice(_STRANGE_TEXTS)
    turns = chance.choice((f'["{text}"]', f'["{text}", "{text}"]', "[]", f'"{text}"', '[{"role": "user"}]', "[null]"))
    line = f'{{"id": "p0", "dataset": "{text[:100]}", "turns": {turns}}}'
    path.write_text("\n".join([line, *path.read_text().splitlines()[1:]]) + "\n")
    return Damage(f"line 1 is {line:.80}", possible=True)


_LIKE = ("--like", "trace", "--out", "out/n.parquet")


def _checkpoint(folder: Path, chance: Random) -> Damage:
    """A drafter's weights or configuration; both are a person's own."""
    path = folder / "models/drafter"
    if chance.random() < 0.5:
        return damage_json(path / "config.json", chance, possible=True)
    return _tensors(path / "model.safetensors", chance)


def _tensors(path: Path, chance: Random) -> Damage:
    """Damage to a file of tensors: to its header half of the time."""
    if chance.random() < 0.5:
        return damage_bytes(path, chance, possible=True)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = path.with_suffix(".json")
    header.write_bytes(data[8 : 8 + size])
    damage = damage_json(header, chance, possible=True)
    changed = header.read_bytes()
    header.unlink()
    length = chance.choice((len(changed),) * 6 + (2**40, 2**63 - 1, 0, len(changed) - 1))
    path.write_bytes(length.to_bytes(8, "little") + changed + data[8 + size :])
    return Damage(f"{path.name}: header of {length:,} bytes: {damage.note}", possible=True)


def _configuration(folder: Path, chance: Random) -> Damage:
    path = folder / "models" / chance.choice(("target", "drafter")) / "config.json"
    damage = damage_json(path, chance, possible=True)
    return Damage(f"{path.parent.name}/{damage.note}", possible=True)


_CONFIGURED = (
    Command(("record", *_MODELS, "--prompts", "models/more.jsonl", "--out", "out/trace", "--dry-run", "configs")),
    Command(
        (
            *("replay", "--trace", "trace", "--cost", "cost.json", "--json", "--threads", "1"),
            *("-p", 'bastion:budget=16,cost_model=roofline,target_config="models/target"'),
        )
    ),
    Command(("inspect", "models/drafter", "--json")),
)

_CHECKPOINTS = (
    Command(("inspect", "models/drafter", "--json")),
    Command(("inspect", "models/drafter/model.safetensors", "--json")),
    Command(("inspect", "models/drafter")),
    _record("models/prompts.jsonl"),
)


def _training(folder: Path, chance: Random) -> Damage:
    """The state, the notes or the weights of a training run."""
    paths = sorted(path for path in (folder / "training").iterdir() if path.is_file())
    path = chance.choice(paths)
    if path.suffix == ".safetensors":
        return _tensors(path, chance)
    if path.suffix == ".json":
        return damage_json(path, chance, possible=True)
    if path.suffix == ".jsonl":
        return damage_json_lines(path, chance, possible=True)
    return damage_bytes(path, chance, possible=True)


_SIZES = ("--block-size", "4", "--layers", "1", "--taps", "0,1,2", "--steps", "3", "--eval-every", "3")
_PLAN = ("--sequences", "2", "--roots", "4", "--warmup-steps", "2", "--head-tokens", "60", "--max-new-tokens", "16")
_TRAIN = ("train", "dflash", "--target", "models/target", "--text", "training.parquet", "--out", "training", *_SIZES)
_TRAINED = (Command((*_TRAIN, *_PLAN, "--dev-limit", "4", "--resume"), ("training",), figured=False),)


_CANDIDATES = ("import", "candidates.jsonl", "--json")

KINDS = (
    Kind(
        "candidates",
        ("candidates.jsonl",),
        _lines("candidates.jsonl"),
        (Command(_CANDIDATES), Command((*_CANDIDATES, "--out", "out/trace"), ("out/trace",))),
        share=2,
    ),
    Kind("prompts", ("models",), _prompts, (_record("models/more.jsonl"),), share=2),
    Kind(
        "text-tables",
        ("trace", "texts.parquet"),
        lambda folder, chance: damage_parquet(folder / "texts.parquet", chance, possible=True),
        (Command(("train", "ngram", "--text", "texts.parquet", *_LIKE), ("out/n.parquet",)),),
        share=4,
    ),
    Kind(
        "text-lines",
        ("trace", "texts.jsonl"),
        _lines("texts.jsonl"),
        (Command(("train", "ngram", "--text", "texts.jsonl", *_LIKE), ("out/n.parquet",)),),
        share=3,
    ),
    Kind("checkpoints", ("models",), _checkpoint, _CHECKPOINTS, share=5),
    Kind("configurations", ("models", "trace", "cost.json"), _configuration, _CONFIGURED, share=5),
    Kind("training", ("models", "training.parquet", "training"), _training, _TRAINED, share=1),
)
