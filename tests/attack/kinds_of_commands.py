"""Command lines at the edges, and where commands run: names that lead elsewhere, code, taken places, closed streams."""

import argparse
import json
import shutil
from pathlib import Path
from random import Random

import polars as pl
from attack_cases import GOOD, HARMLESS, REFUSED, Damage, Kind
from attack_inputs import BRACKETS, VOCABULARY
from attack_run import SETTINGS, UNPRIVILEGED
from damage_files import MANIFEST, put_special, sign
from damage_parquet import metadata_of
from damage_values import TEXTS, number
from synthetic_traces import write_synthetic_trace

from simlab.cli import main as command_line
from simlab.cli.main import COMMANDS, parser_for
from simlab.cli.parser import Parser

_LEFT_OUT = ("demo", "profile", "reproduce", "field")
"""They take minutes, or ask the hub."""

_COUNTS = ("0", "1", "-1", "2", "3", "7")
_FILES = ("trace", "cost.json", "results.parquet", "calibration.json", "ngram.parquet", "optimum.json", "texts.jsonl")
_NO_FILES = ("nowhere", "out", ".", "/dev/null", "trace/manifest.json", "a\x1b[31mb", "", "\udc80", "~", "timings.csv")
_OUTS = ("out/o.parquet", "out/o.json", "out", "trace", "/dev/null/x", "/proc/nowhere", "out/\x1b[31m", "", "cost.json")
_POLICIES = (
    *("chain", "ddtree:budget=8", "ddtree:budget=1..12", "ar", "caddtree:budget=8", "spine-gap", "joint:budget=8"),
    *("survival:threshold=0", 'calibrated:budget=8,table="calibration.json"', "policy.py:Mine", "policy.py", ":"),
    *("ddtree:budget=-1", "ddtree:budget=1e9", "ddtree:budget=0", "ddtree", "nothing", "chain:length=", "", "=,"),
    *("chain:length=0", "ddtree:budget=1/2/x", "ddtree:budget=1..1000000000", "ddtree:budget=5..1", "ddtree:x=1"),
    *("presto:ngram_weight=nan,budget=4", "ddtree:budget=8,budget=9", "chain:length=\x1b[31m", "ddtree:budget=0.5~2"),
    "ddtree:budget=" + "9" * 5000,
)
_LARGE = ("limit", "nodes", "repeats", "texts", "synthetic", "steps", "trials", "cases")
"""Options of which a large number, typed right, takes as long as it says."""

_WORDS = ("--", "-", "a b", "\u202e", "1,2,3", "verify*0.5", "verify*0", "verify*nan", "tile=64", "batch=2", "math")
_LIKELY = {
    "trace": "trace",
    "like": "trace",
    "a": "trace",
    "b": "trace",
    "dev_trace": "trace",
    "cost": "cost.json",
    "results": "results.parquet",
    "optimum": "optimum.json",
    "text": "texts.jsonl",
    "out": "out/o",
    "rounds": "out/n.parquet",
    "path": "",
    "timings": "",
}
"""Files that options ask for, by the options' names; empty: any."""


def _value(option: argparse.Action, chance: Random) -> str:
    """A value for an option, fitting more often than not."""
    if option.choices is not None and chance.random() < 0.9:
        return str(chance.choice(list(option.choices)))
    if option.dest in ("policy", "policies", "against"):
        return chance.choice(_POLICIES)
    if option.dest == "threads":
        return chance.choice(("1", "1", "1", "2", "0"))
    if option.type is Path or option.dest in _LIKELY:
        if chance.random() < 0.7:
            return _LIKELY.get(option.dest) or chance.choice(_FILES)
        return chance.choice(_OUTS if option.dest in ("out", "rounds") else (*_FILES, *_NO_FILES))
    if option.type is not None:
        odd = (str(number(chance)), *TEXTS, "0x1", "٣", "1e3", "9" * 400)
        return chance.choice(_COUNTS if option.dest in _LARGE or chance.random() < 0.5 else odd)
    return chance.choice((*_WORDS, *TEXTS, *_FILES, *_NO_FILES, *_COUNTS))


def _typed(option: argparse.Action, chance: Random) -> list[str]:
    name = chance.choice(option.option_strings) if option.option_strings else ""
    if option.nargs == 0:
        return [name]
    value = _value(option, chance)
    if not name:
        return [] if value.startswith("-") else [value]
    return [f"{name}={value}"] if chance.random() < 0.5 and name.startswith("--") else [name, value]


def _drawn(chance: Random) -> list[str]:
    """Words of a command from its own parser: what it must have, some of what it may have, mistakes now and then."""
    words = [chance.choice([name for name in (*COMMANDS, *command_line.KINDS) if name not in _LEFT_OUT])]
    if words[0] in command_line.KINDS:
        words.append(chance.choice([kind for kind in command_line.KINDS[words[0]][1] if kind not in _LEFT_OUT]))
    parser: Parser = parser_for(*words)
    for word in words:
        assert parser.commands is not None
        parser = parser.commands.choices[word]
    for option in parser._actions:
        if isinstance(option, argparse._HelpAction | argparse._SubParsersAction):
            continue
        likely = 0.95 if option.required or option.dest in ("trace", "threads") else 0.15
        for _ in range(2 if chance.random() < 0.1 else 1):
            words += _typed(option, chance) if chance.random() < likely else []
    if chance.random() < 0.1:
        words.insert(chance.randrange(1, len(words) + 1), chance.choice(("--nonsense", "-p", "--json=1", "--", "-h")))
    # What was typed right is kept from taking minutes, and from asking the hub.
    if words[0] in ("record", "confirm") or words[1:2] == ["dflash"]:
        words += ["--target", "nowhere"]
    elif words[0] == "optimize" and not any(word.startswith("--trace") for word in words):
        words += ["--trace", "trace"]
    return words + (["--from", "texts.jsonl"] if words[0] == "prompts" else [])


def _nothing(_folder: Path, _chance: Random) -> Damage:
    return Damage("none: the command line itself", GOOD)


_HTML = "--out out/r.html"
_LIKE = "--like trace --out out/n.parquet"
_SOMEWHERE = (
    "replay --trace trace --json -p chain --out out/r.parquet",
    f"report results.parquet --trace trace {_HTML}",
    f"train ngram --text texts.jsonl {_LIKE}",
    "inspect trace",
    "policies",
    "export --format vllm --trace trace -p chain",
)


def _setting(_folder: Path, chance: Random) -> Damage:
    setting = chance.choice([name for name in SETTINGS if name not in ("", UNPRIVILEGED)])
    return Damage("none: where the command is run", setting=setting)


_PATTERNS = (
    f"replay --trace {BRACKETS}/trace -p chain --json",
    f"inspect {BRACKETS}/results[1].parquet --json",
    f"inspect {BRACKETS}/trace --json",
    f"merge {BRACKETS}/results[1].parquet {BRACKETS}/half[1].parquet --out out/m[1].parquet",
    f"train ngram --text {BRACKETS}/texts[1].parquet {_LIKE}",
    f"prompts gsm8k --from {BRACKETS}/gsm8k[1].jsonl --out out/p.jsonl",
    f"report {BRACKETS}/results[1].parquet --trace trace --out out/r[1].html",
    f"export --push out/sent[1] --trace {BRACKETS}/trace",
)


def _beside(folder: Path, chance: Random) -> Damage:
    """Other files where a pattern would find them."""
    shutil.copytree(folder / "other", folder / "run1/trace")
    for place in (folder / "run1", folder / BRACKETS):
        for name in ("results1.parquet", "results[1].parquet"):
            if not (place / name).exists():
                shutil.copyfile(folder / "half.parquet", place / name)
        pl.read_parquet(folder / "texts.parquet").head(chance.randrange(1, 4)).write_parquet(place / "texts1.parquet")
    return Damage("other files in run1, and beside those with brackets", (HARMLESS,))


_PRICED = "--trace trace --cost cost.json"
_SHORT = (
    f"report {_PRICED} -p ddtree:budget=4 --texts 1 {_HTML}",
    f"report --trace trace -p chain {_HTML}",
    f"replay {_PRICED} -p ddtree:budget=4 -p caddtree:budget=8 --by dataset",
    f"optimize {_PRICED} -p ddtree:budget=4/8",
    f"study curves {_PRICED} --budget 4 --edges raw",
    f"study scoring {_PRICED} -p chain --nodes 4",
    "train calibration --trace trace --out out/c.json",
    "train ranks --trace trace --out out/c.json",
    "export --format vllm --trace trace -p chain",
    "export --format conformance --trace trace -p chain",
    "inspect trace",
)


def _short(folder: Path, chance: Random) -> Damage:
    shutil.rmtree(folder / "trace")
    texts, length = chance.choice((0, 1, 2, 5)), chance.choice((1, 1, 2, 3))
    write_synthetic_trace(folder / "trace", chance.randrange(9), texts, length, vocab_size=VOCABULARY)
    return Damage(f"a trace of {texts} texts of at most {length} tokens", GOOD)


_VICTIM = "policy.py"
_NAMES = (
    *(f"../{_VICTIM}", f"../out/{_VICTIM}", f"{{folder}}/{_VICTIM}", "a/b.parquet", "..", ".", "", MANIFEST, "a\0b"),
    *("../../../../../../../etc/passwd", ".decoded/x.rows", "README.md", "\ud800", "x" * 5000, "a\x1b[31m\u202eb"),
    *("draft-synthetic-0000.parquet/", "draft-synthetic-0099.parquet"),
)


def _names(folder: Path, chance: Random) -> Damage:
    """Another name for a file, a draft set or a channel, in a manifest that is signed."""
    path, name = folder / "channels" / MANIFEST, chance.choice(_NAMES).replace("{folder}", str(folder))
    values = json.loads(path.read_text())
    where = chance.choice(("files", "one file more", "draft_sets", "channels"))
    named = values["contents"]["files"] if "file" in where else values[where]
    named[name] = {"num_bytes": 7, "sha256": "0" * 64} if "more" in where else named.pop(chance.choice(list(named)))
    path.write_text(json.dumps(values))
    sign(path)
    return Damage(f"the name {name:.40} among {where}", (REFUSED,))


_NAMED = (
    "inspect channels --json",
    "replay --trace channels -p chain --draft-set synthetic --json",
    "export --push out/a/b/sent --trace channels",
    "export --push out/sent --trace channels --dry-run",
)

_EVIL = "import os\nos._exit(99)\nclass Mine: ...\n"


def _code(folder: Path, chance: Random) -> Damage:
    """A file of results or a choice whose policy is a program; who reads it, runs nothing of it."""
    (folder / "evil.py").write_text(_EVIL)
    name = f"{chance.choice((str(folder), '.'))}/evil.py:Mine"
    if chance.random() < 0.5:
        path = folder / "optimum.json"
        text = path.read_text()
        old = chance.choice([label for label in ("ddtree:budget=8", "ddtree:budget=4", "chain") if label in text])
        path.write_text(text.replace(f'"{old}"', f'"{name}"'))
    else:
        path, old = folder / "results.parquet", chance.choice(("policy", "name"))
        rows, metadata = pl.read_parquet(path), metadata_of(path)
        rows.with_columns(pl.lit(name).alias(old)).write_parquet(path, metadata=metadata)
    sign(path)
    return Damage(f"{old} of {path.name} is {name}; signed", GOOD)


_RUNS_NOTHING = (
    "confirm --from optimum.json --trace trace --out out/confirm",
    "inspect optimum.json --json",
    "inspect results.parquet --json",
    f"report results.parquet --trace trace --optimum optimum.json {_HTML}",
    "merge results.parquet half.parquet --out out/m.parquet --json",
    "compare results.parquet -p ddtree:budget=8 --against chain --json",
    "export --format markdown --results results.parquet",
)


def _taken(folder: Path, chance: Random) -> Damage:
    """Something is there that the command is to write, and is no file of its own."""
    path, what = folder / "taken", chance.choice(("a file", "a trace", "something else"))
    if what == "a trace":  # a file of results may lie beside those of a trace
        shutil.copytree(folder / "trace", path)
        return Damage("where it is to be written there is a trace", GOOD)
    path.write_text("mine")
    what = put_special(path, chance) if what == "something else" else what
    return Damage(f"where it is to be written there is {what}", GOOD if what == "a folder" else (REFUSED,))


_TAKEN = (
    "export --push taken --trace trace",
    "record --prompts nowhere.jsonl --out taken",
    "replay --trace trace -p chain --out taken/r.parquet",
)

KINDS = (
    Kind("command-lines", (*_FILES, "timings.csv", "policy.py"), _nothing, _drawn, 20),
    Kind("settings", ("trace", "results.parquet", "texts.jsonl"), _setting, _SOMEWHERE),
    Kind("brackets", (BRACKETS, "trace", "other", "half.parquet", "texts.parquet"), _beside, _PATTERNS, 2),
    Kind("short-texts", ("trace", "cost.json"), _short, _SHORT),
    Kind("names", ("channels", _VICTIM), _names, _NAMED, 5),
    Kind("code", ("trace", "results.parquet", "half.parquet", "optimum.json"), _code, _RUNS_NOTHING),
    Kind("taken-places", ("trace",), _taken, _TAKEN, 1),
)
