"""Places that are none: pipes, devices, links, names that lead elsewhere or name code; and where commands are run."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import polars as pl
from attack_cases import Command, Damage, Kind
from attack_judge import HARMLESS, REFUSED
from attack_run import SETTINGS
from damage_bytes import damage_bytes, damage_folder
from damage_parquet import CHANGES, damage_parquet
from damage_signed import sign_json, sign_table
from synthetic_traces import write_synthetic_trace

_ONE = ("--threads", "1")
_TRACE = ("--trace", "trace")
_REPLAY = ("replay", *_TRACE, "--json", *_ONE)
_HTML = ("out/r.html",)
_LIKE = ("--like", "trace", "--out", "out/n.parquet")
_TIMED = ("--counts", "root-included", *_TRACE, "--draft-s", "0.01", "--json", "--out", "out/c.json")

_OF: dict[str, Command] = {
    "cost.json": Command((*_REPLAY, "--cost", "cost.json", "-p", "chain")),
    "calibration.json": Command((*_REPLAY, "-p", 'calibrated:budget=8,table="calibration.json"')),
    "ngram.parquet": Command((*_REPLAY, "-p", 'presto:budget=8,ngram="ngram.parquet"')),
    "results.parquet": Command(("compare", "results.parquet", "-p", "ddtree:budget=8", "--against", "chain", "--json")),
    "optimum.json": Command(("inspect", "optimum.json", "--json")),
    "texts.jsonl": Command(("train", "ngram", "--text", "texts.jsonl", *_LIKE), ("out/n.parquet",)),
    "texts.parquet": Command(("train", "ngram", "--text", "texts.parquet", *_LIKE), ("out/n.parquet",)),
    "timings.csv": Command(("import", "timings.csv", *_TIMED), ("out/c.json",)),
    "gsm8k.jsonl": Command(("prompts", "gsm8k", "--from", "gsm8k.jsonl", "--out", "out/p.jsonl"), ("out/p.jsonl",)),
    "policy.py": Command((*_REPLAY, "-p", "policy.py:Mine")),
    "trace/manifest.json": Command((*_REPLAY, "-p", "chain")),
    "trace/draft-synthetic-0000.parquet": Command((*_REPLAY, "-p", "chain")),
    "trace/sequences.parquet": Command(("inspect", "trace", "--json")),
    "trace": Command((*_REPLAY, "-p", "chain")),
}
"""A command for each file that may be something else."""


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _linked_to(place: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(place)


_SPECIAL: dict[str, Callable[[Path], None]] = {
    "a pipe": _pipe,
    "a link to /dev/zero": _linked_to("/dev/zero"),
    "a link to /dev/urandom": _linked_to("/dev/urandom"),
    "a link to /dev/null": _linked_to("/dev/null"),
    "a link to a process's memory": _linked_to("/proc/self/mem"),
    "a link to nothing": _linked_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
}


def _special(name: str) -> Kind:
    """A kind of one file that is none, that is a link to itself under another name, or that nobody may read."""

    def damage(folder: Path, chance: Random) -> Damage:
        path, what = folder / name, chance.choice([*_SPECIAL, "a link to the file"])
        if what == "a link to the file":
            path.rename(path.with_name(f"moved-{path.name}"))
            path.symlink_to(f"moved-{path.name}")
            return Damage(f"{name} is {what}", expected=HARMLESS)
        (shutil.rmtree if path.is_dir() else Path.unlink)(path)
        _SPECIAL[what](path)
        return Damage(f"{name} is {what}", expected=REFUSED)

    inputs = tuple(dict.fromkeys(("trace", name.partition("/")[0])))
    return Kind(f"special-{name.replace('/', '-')}", inputs, damage, (_OF[name],), share=1)


def _unreadable(folder: Path, chance: Random) -> Damage:
    for name in _READ:
        (folder / name).chmod(0)
    return Damage("nobody may read the file", expected=REFUSED)


_READ = [name for name in _OF if name != "trace"]
_UNPRIVILEGED = [
    *(replace(_OF[name], setting="no privileges") for name in _READ),
    Command(("inspect", "cost.json"), setting="no privileges"),
    Command(("inspect", "results.parquet"), setting="no privileges"),
]
_ALL = tuple(dict.fromkeys(("trace", *(name.partition("/")[0] for name in _OF))))


_ASKED = (
    Command((*_REPLAY, "-p", "chain", "--out", "out/r.parquet"), ("out/r.parquet",)),
    Command(("report", "results.parquet", *_TRACE, "--out", "out/r.html"), _HTML),
    Command(("train", "ngram", "--text", "texts.jsonl", *_LIKE), ("out/n.parquet",)),
    Command(("inspect", "trace")),
    Command(("policies",)),
    Command(("export", "--format", "vllm", *_TRACE, "-p", "chain")),
)


def _asked_somewhere(chance: Random) -> Command:
    setting = chance.choice([name for name in SETTINGS if name != "no privileges"])
    codes = (0, 141) if setting == "a reader that has left" else (0,)
    return replace(chance.choice(_ASKED), setting=setting, codes=codes)


def _nothing(_folder: Path, _chance: Random) -> Damage:
    return Damage("none: where the command is run")


_BRACKETS = "run[1]"
_PATTERNS = (
    Command(("replay", "--trace", f"{_BRACKETS}/trace", "-p", "chain", "--json", *_ONE)),
    Command(("inspect", f"{_BRACKETS}/results[1].parquet", "--json")),
    Command(("inspect", f"{_BRACKETS}/trace", "--json")),
    Command(
        ("merge", *(f"{_BRACKETS}/{name}[1].parquet" for name in ("results", "half")), "--out", "out/m[1].parquet")
    ),
    Command(("train", "ngram", "--text", f"{_BRACKETS}/texts[1].parquet", *_LIKE), ("out/n.parquet",)),
    Command(("prompts", "gsm8k", "--from", f"{_BRACKETS}/gsm8k[1].jsonl", "--out", "out/p.jsonl"), ("out/p.jsonl",)),
    Command(("report", f"{_BRACKETS}/results[1].parquet", *_TRACE, "--out", "out/r[1].html"), ("out/r[1].html",)),
    Command(("export", "--push", "out/sent[1]", "--trace", f"{_BRACKETS}/trace"), ("out/sent[1]",)),
)


def _beside(folder: Path, chance: Random) -> Damage:
    """Other files where a pattern would find them."""
    shutil.copytree(folder / "other", folder / "run1/trace")
    for place in (folder / "run1", folder / _BRACKETS):
        for name in ("results1.parquet", "results[1].parquet"):
            if not (place / name).exists():
                shutil.copyfile(folder / "half.parquet", place / name)
        pl.read_parquet(folder / "texts.parquet").head(chance.randrange(1, 4)).write_parquet(place / "texts1.parquet")
    return Damage("other files in run1, and beside those with brackets", expected=HARMLESS)


_BY_SHORT = ("--trace", "trace", "--cost", "cost.json")
_SHORT = (
    Command(("report", *_BY_SHORT, "-p", "ddtree:budget=4", "--texts", "1", "--out", "out/r.html"), _HTML),
    Command(("report", "--trace", "trace", "-p", "chain", "--out", "out/r.html"), _HTML),
    Command(("replay", *_BY_SHORT, "-p", "ddtree:budget=4", "-p", "caddtree:budget=8", "--by", "dataset", *_ONE)),
    Command(("optimize", *_BY_SHORT, "-p", "ddtree:budget=4/8", *_ONE)),
    Command(("study", "curves", *_BY_SHORT, "--budget", "4", "--edges", "raw")),
    Command(("study", "scoring", *_BY_SHORT, "-p", "chain", "--nodes", "4")),
    Command(("train", "calibration", "--trace", "trace", "--out", "out/c.json"), ("out/c.json",)),
    Command(("train", "ranks", "--trace", "trace", "--out", "out/c.json"), ("out/c.json",)),
    Command(("export", "--format", "vllm", "--trace", "trace", "-p", "chain")),
    Command(("export", "--format", "conformance", "--trace", "trace", "-p", "chain")),
    Command(("inspect", "trace")),
)


def _short(folder: Path, chance: Random) -> Damage:
    shutil.rmtree(folder / "trace")
    number, length = chance.choice((0, 1, 2, 5)), chance.choice((1, 1, 2, 3))
    write_synthetic_trace(folder / "trace", chance.randrange(9), number, length, vocab_size=200)
    return Damage(f"a trace of {number} texts of at most {length} tokens", possible=True)


_VICTIM = "policy.py"
_NAMES = (
    f"../{_VICTIM}",
    f"../out/{_VICTIM}",
    f"{{folder}}/{_VICTIM}",
    "../../../../../../../etc/passwd",
    "a/b.parquet",
    "..",
    ".",
    "",
    "manifest.json",
    ".decoded/x.rows",
    "README.md",
    "a\0b",
    "\ud800",
    "x" * 5000,
    "draft-synthetic-0000.parquet/",
    "draft-synthetic-0099.parquet",
    "a\x1b[31m\u202eb",
)


def _names(folder: Path, chance: Random) -> Damage:
    """Another name for a file, a draft set or a channel, in a manifest that is signed."""
    path, name = folder / "channels/manifest.json", chance.choice(_NAMES).format(folder=folder)
    values = json.loads(path.read_text())
    listed = values["contents"]["files"]
    what = chance.randrange(4)
    if what == 0:
        listed[name] = listed.pop(chance.choice(list(listed)))
    elif what == 1:
        listed[name] = {"num_bytes": 7, "sha256": "0" * 64}
    else:
        sets = values["draft_sets"] if what == 2 else values["channels"]
        sets[name] = sets.pop(chance.choice(list(sets)))
    path.write_text(json.dumps(values))
    sign_json(path)
    where = ("in the place of a file's", "as one file more", "as a draft set's", "as a channel's")[what]
    return Damage(f"the name {name:.40} {where}", expected=REFUSED)


_NAMED = (
    Command(("inspect", "channels", "--json")),
    Command(("replay", "--trace", "channels", "-p", "chain", "--draft-set", "synthetic", "--json", *_ONE)),
    Command(("export", "--push", "out/a/b/sent", "--trace", "channels"), ("out/a/b/sent",), figured=False),
    Command(("export", "--push", "out/sent", "--trace", "channels", "--dry-run"), figured=False),
)

_EVIL = """import os
os._exit(99)
class Mine: ...
"""


def _code(folder: Path, chance: Random) -> Damage:
    """A file of results or a choice whose policy is a program; who reads it, runs nothing of it."""
    (folder / "evil.py").write_text(_EVIL)
    name = f"{chance.choice((str(folder), '.'))}/evil.py:Mine"
    if chance.random() < 0.5:
        path = folder / "optimum.json"
        text = path.read_text()
        old = chance.choice(sorted({one for one in ("ddtree:budget=8", "ddtree:budget=4", "chain") if one in text}))
        path.write_text(text.replace(f'"{old}"', f'"{name}"'))
        sign_json(path)
        return Damage(f"{old} of the choice is {name}", possible=True)
    rows = pl.read_parquet(folder / "results.parquet")
    kept = {
        key: value for key, value in pl.read_parquet_metadata(folder / "results.parquet").items() if "ARROW" not in key
    }
    column = chance.choice(("policy", "name"))
    rows.with_columns(pl.lit(name).alias(column)).write_parquet(folder / "results.parquet", metadata=kept)
    sign_table(folder / "results.parquet")
    return Damage(f"{column} of the results is {name}", possible=True)


_RUNS_NOTHING = (
    Command(("confirm", "--from", "optimum.json", *_TRACE, "--out", "out/confirm"), codes=(2,), figured=False),
    Command(("inspect", "optimum.json", "--json")),
    Command(("inspect", "results.parquet", "--json")),
    Command(("report", "results.parquet", *_TRACE, "--optimum", "optimum.json", "--out", "out/r.html"), _HTML),
    Command(("merge", "results.parquet", "half.parquet", "--out", "out/m.parquet", "--json"), ("out/m.parquet",)),
    Command(("compare", "results.parquet", "-p", "ddtree:budget=8", "--against", "chain", "--json")),
    Command(("export", "--format", "markdown", "--results", "results.parquet")),
)


def _sent(folder: Path, chance: Random) -> Damage:
    return damage_folder(folder / "trace", chance)


_SENDS = (
    Command(("export", "--push", "out/sent", *_TRACE), ("out/sent",)),
    Command(("export", "--push", "out/sent", *_TRACE, "--dry-run")),
)


def _taken(folder: Path, chance: Random) -> Damage:
    """Something is there that the command is to write, and is no file of its own."""
    what = chance.choice(("a file", "a trace", "a link to itself", "a pipe"))
    place = folder / "taken"
    if what == "a trace":
        shutil.copytree(folder / "trace", place)
    elif what == "a file":
        place.write_text("mine")
    else:
        _SPECIAL[what](place)
    # A file of results may lie beside those of a trace.
    return Damage(f"where it is to be written there is {what}", expected="" if what == "a trace" else REFUSED)


_TAKEN = (
    Command(("export", "--push", "taken", *_TRACE), ("taken",), figured=False),
    Command(("record", "--prompts", "nowhere.jsonl", "--out", "taken"), ("taken",), figured=False),
    Command((*_REPLAY, "-p", "chain", "--out", "taken/r.parquet"), ("taken",), figured=False),
)

_PARTS = ("part0.parquet", "part.parquet", "sums0.parquet", "sums.parquet", "all-sums.parquet")
_CHOICE = ("--trace", "trace", "--cost", "cost.json", "-p", "ddtree:budget=4/8", "--no-halving", "--json")
_JOINED = (
    Command(("merge", "part0.parquet", "part.parquet", "--out", "out/m.parquet", "--json"), ("out/m.parquet",)),
    Command(("merge", "sums0.parquet", "sums.parquet", "--out", "out/m.parquet", "--json"), ("out/m.parquet",)),
    Command(("optimize", *_CHOICE, "--sums", "all-sums.parquet")),
)


def _part(folder: Path, chance: Random) -> Damage:
    """A part of a replay or of sums: damaged, signed again, or of another number."""
    path, what = folder / chance.choice(_PARTS), chance.randrange(5)
    if what == 0:
        return damage_bytes(path, chance)
    if what == 1:
        other = chance.choice([name for name in _PARTS if name != path.name])
        shutil.copyfile(folder / other, path)
        return Damage(f"{path.name} is a copy of {other}")
    if what == 2:
        return damage_parquet(path, chance)
    damage = damage_parquet(path, chance, changes=CHANGES, footers=0.0)
    signed = sign_table(path)
    return Damage(f"{damage.note}{'; signed' if signed else ''}", possible=signed)


KINDS = (
    *(_special(name) for name in _OF),
    Kind("unreadable", _ALL, _unreadable, _UNPRIVILEGED, share=2),
    Kind("settings", ("trace", "results.parquet", "texts.jsonl"), _nothing, draw=_asked_somewhere, share=4),
    Kind("brackets", (_BRACKETS, "trace", "other", "half.parquet", "texts.parquet"), _beside, _PATTERNS, share=2),
    Kind("short-texts", ("trace", "cost.json"), _short, [replace(one, figured=False) for one in _SHORT], share=4),
    Kind("names", ("channels", _VICTIM), _names, _NAMED, share=5),
    Kind("code", ("trace", "results.parquet", "half.parquet", "optimum.json"), _code, _RUNS_NOTHING, share=4),
    Kind("sent-traces", ("trace",), _sent, _SENDS, share=3),
    Kind("taken-places", ("trace",), _taken, _TAKEN, share=1),
    Kind("parts", ("trace", "cost.json", *_PARTS), _part, _JOINED, share=8),
)
