"""What stands beside a draft set: channels, a second one, rows kept decoded, dumped states, other checkpoints."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind
from damage_bytes import damage_bytes, damage_folder
from damage_json import damage_json_lines
from damage_parquet import damage_parquet
from damaged_checkpoints import DAMAGES
from kinds_traces import is_another_trace, manifest_damage, mend_files, tables

from simlab.cli.main import main

TRACE = "channels"
_REPLAY = ("replay", "--trace", TRACE, "--threads", "1")
_OF = {
    "transitions": "treeflash:budget=6,previous=3,top_k=3,channel=transitions",
    "pool": "tree:budget=6,edges=pool,channel=pool,pool_beam=2",
    "branches": "d2sd:budget=6,branches=2,channel=branches",
    "features": 'router:routes="ddtree:budget=8|chain",by=network,channel=features,cost=cost.json',
}
"""A policy that reads each kind of channel."""

_READERS = (
    *(Command((*_REPLAY, "-p", policy, "--draft-set", "synthetic", "--json")) for policy in _OF.values()),
    Command((*_REPLAY, "-p", "ddtree:budget=4", "--draft-set", "second", "--json")),
    Command(("inspect", TRACE, "--json")),
    Command(("inspect", TRACE, "--json")),
    Command((*_REPLAY, "-p", _OF["pool"], "--draft-set", "synthetic", "--out", "out/r.parquet"), ("out/r.parquet",)),
    Command(("export", "--push", "out/sent", "--trace", TRACE), ("out/sent",), figured=False),
    Command(("export", "--format", "conformance", "--trace", TRACE, "--draft-set", "second", "-p", "chain")),
)


def _changed(folder: Path, chance: Random) -> Damage:
    """A channel or a draft set; the digests that cover it are left alone, or mended."""
    what = chance.randrange(6)
    if what == 0:
        return damage_folder(folder / TRACE, chance)
    if what == 1:
        return manifest_damage(folder / TRACE, chance)
    if what == 2:
        first, second = _pair(folder, chance)
        data, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(data)
        note = f"{first.name} and {second.name} have changed places"
    else:
        path = chance.choice([one for one in tables(folder / TRACE) if one.name.startswith(("channel", "draft"))])
        note = damage_parquet(path, chance).note
    if what == 3:
        return Damage(note)
    mend_files(folder / TRACE)
    another = is_another_trace(folder / TRACE, "")
    return Damage(f"{note}; sizes and digests of files mended", another, mended=True)


def _pair(folder: Path, chance: Random) -> tuple[Path, Path]:
    """Two files of one kind: of two shards, or of two draft sets."""
    names = chance.choice(
        [
            ("draft-synthetic-0000", "draft-second-0000"),
            ("draft-second-0000", "draft-second-0001"),
            *((f"channel-{name}-0000", f"channel-{name}-0001") for name in _OF),
        ]
    )
    first, second = (folder / TRACE / f"{name}.parquet" for name in names)
    return first, second


_DECODED = "large/.decoded"
_LARGE = (
    Command(("replay", "--trace", "large", "-p", "ddtree:budget=8", "--json", "--threads", "1")),
    Command(("replay", "--trace", "large", "-p", "chain", "--json", "--threads", "1")),
    Command(("inspect", "large", "--json")),
)


def _decoded(folder: Path, chance: Random) -> Damage:
    """Rows that were kept decoded: no figure is made of what somebody else wrote there."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main([*_LARGE[0].words[:2], str(folder / "large"), *_LARGE[0].words[3:]])
    kept = sorted(path for path in (folder / _DECODED).iterdir() if path.suffix in (".rows", ".stamp"))
    path, what = chance.choice(kept), chance.randrange(5)
    if what == 0:
        return replace(damage_folder(folder / _DECODED, chance), mended=True)
    if what == 1 and path.suffix == ".stamp":
        words = path.read_text(errors="replace").split()
        at = chance.randrange(len(words))
        words[at] = chance.choice(("", "0" * 64, words[at - 1], words[at][::-1], "9" * 5000))
        path.write_text(" ".join(words))
        return Damage(f"{path.name}: word {at} is {words[at]:.20}", mended=True)
    if what == 2:
        other = chance.choice([one for one in kept if one.suffix == path.suffix])
        path.write_bytes(other.read_bytes())
        return Damage(f"{path.name} is a copy of {other.name}", mended=True)
    rows = path.with_suffix(".rows")
    data = bytearray(rows.read_bytes())
    at = chance.randrange(len(data) // 4) * 4
    data[at : at + 400] = chance.choice((bytes(400), data[:400], chance.randbytes(400)))
    rows.write_bytes(bytes(data[: rows.stat().st_size]))
    return Damage(f"{rows.name}: 400 bytes at {at} are others", mended=True)


_FEW = ("--max-new-tokens", "4", "--limit", "2", "--min-width", "8", "--exact-budget", "8")
_MODELS = ("--target", "models/target", "--draft", "models/drafter")
_DUMPED = (
    *("record", *_MODELS, "--completions", "dumps/served.jsonl", "--hidden-states", "dumps/states"),
    *("--hidden-layers", "1,2,3,4", "--out", "out/trace", "--min-width", "8", "--exact-budget", "8"),
)


def _dumps(folder: Path, chance: Random) -> Damage:
    """Dumped states and the texts along which they were; what they say is the engine's own."""
    states, what = sorted((folder / "dumps/states").iterdir()), chance.randrange(4)
    if what == 0:
        return damage_json_lines(folder / "dumps/served.jsonl", chance, possible=True)
    if what == 1:
        return damage_folder(folder / "dumps/states", chance, possible=True)
    if what == 2:
        return damage_bytes(chance.choice(states), chance, possible=True)
    return Damage(DAMAGES[chance.choice(("change header", "change tensor"))](folder / "dumps/states", chance), True)


_HEADS = ("treeflash", "taps", "router", "eagle3", "adapter")
_ADD = ("record", "--trace", "models/trace", "--target", "models/target")
_DRAFTED = ("--draft", "models/drafter")
_TEXT = ("--prompts", "models/prompts.jsonl", "--out", "out/trace", *_FEW)


def _added(name: str, *settings: str, models: tuple[str, ...] = _DRAFTED) -> Command:
    words = (*_ADD, *models, "--add-channel", ",".join([f"{name}=heads/{name}", *settings]))
    return Command(words, ("models/trace",), figured=False)


_ADDED: Sequence[Command] = (
    _added("treeflash", "previous=2", "top_k=3"),
    _added("taps", "beam=3"),
    _added("router", models=()),
    Command(("record", "--target", "models/target", "--draft", "heads/eagle3", *_TEXT), ("out/trace",), figured=False),
    Command(("record", "--target", "models/target", "--draft", "heads/adapter", *_TEXT), ("out/trace",), figured=False),
)


def _head_commands(name: str) -> Sequence[Command]:
    return Command(("inspect", f"heads/{name}", "--json")), _ADDED[_HEADS.index(name)]


def _head(name: str) -> Kind:
    """A kind of checkpoints other than a drafter's; each is a person's own."""

    def damage(folder: Path, chance: Random) -> Damage:
        try:
            note = DAMAGES[chance.choice(list(DAMAGES))](folder / "heads" / name, chance)
        except (OSError, LookupError):  # it is for files that only drafters have
            note = damage_folder(folder / "heads" / name, chance).note
        return Damage(f"{name}: {note}", possible=True)

    return Kind(f"{name}-checkpoints", ("models", "heads"), damage, _head_commands(name), share=2)


KINDS = (
    Kind("channels", (TRACE, "cost.json"), _changed, _READERS, share=16),
    Kind("decoded-rows", ("large",), _decoded, _LARGE, share=4),
    Kind("dumped-states", ("models", "dumps"), _dumps, (Command(_DUMPED, ("out/trace",), figured=False),), share=3),
    *(_head(name) for name in _HEADS),
)
