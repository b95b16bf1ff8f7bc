"""Command lines drawn from the parsers themselves: every command and option, with values at the edges."""

import argparse
from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind

from simlab.cli import main as command_line
from simlab.cli.main import COMMANDS, parser_for
from simlab.cli.parser import Parser

_LEFT_OUT = ("demo", "profile")
_KINDS_LEFT_OUT = ("reproduce", "field")
"""They take minutes, or ask the hub."""

_NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "1000000",
    "1e3",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "0x1",
    "٣",
    "9" * 400,
    "",
    " ",
)
_LARGE = ("--limit", "--nodes", "--repeats", "--texts", "--synthetic", "--steps", "--trials", "--cases")
_FILES = ("trace", "cost.json", "results.parquet", "calibration.json", "ngram.parquet", "optimum.json", "texts.jsonl")
_PATHS = (
    *_FILES,
    *("timings.csv", "nowhere", "out", ".", "/dev/null", "trace/manifest.json", "a\x1b[31mb", "", "\udc80", "~"),
)
_POLICIES = (
    *(
        "chain",
        "ddtree:budget=8",
        "ddtree:budget=1..12",
        "ar",
        "caddtree:budget=8",
        "spine-gap",
        "survival:threshold=0",
    ),
    *(
        "ddtree:budget=-1",
        "ddtree:budget=1e9",
        "ddtree:budget=0",
        "ddtree",
        "nothing",
        "chain:length=",
        "chain:length=0",
    ),
    *(
        "ddtree:budget=1/2/x",
        "ddtree:budget=1..1000000000",
        "ddtree:budget=5..1",
        "presto:ngram_weight=nan,budget=4",
        "",
    ),
    *('calibrated:budget=8,table="calibration.json"', "joint:budget=8", "policy.py:Mine", "policy.py", "ddtree:x=1"),
    *(
        "ddtree:budget=8,budget=9",
        "chain:length=\x1b[31m",
        "ddtree:budget=0.5~2",
        "ddtree:budget=" + "9" * 5000,
        ":",
        "=,",
    ),
)
_WORDS = (
    *("x", "", "--", "-", "a b", "\u202e", "1,2,3", "verify*0.5", "verify*0", "verify*nan", "tile=64", "batch=2"),
    *("math",),
)


def _chosen(option: argparse.Action, chance: Random) -> str:
    """A value for an option, fitting more often than not."""
    if option.choices is not None and chance.random() < 0.9:
        return str(chance.choice(list(option.choices)))
    name = option.option_strings[-1] if option.option_strings else str(option.dest)
    if name in ("--policy", "--against"):
        return chance.choice(_POLICIES)
    if option.type is Path or name in (
        *("--dev-trace", "--like", "--trace", "a", "b", "path", "results", "timings", "--text"),
    ):
        return _path(name, chance)
    if option.type is not None:
        return chance.choice(_NUMBERS[:6] if name in _LARGE or chance.random() < 0.5 else _NUMBERS)
    return chance.choice((*_WORDS, *_PATHS, *_NUMBERS))


def _path(name: str, chance: Random) -> str:
    likely = {"--trace": "trace", "--like": "trace", "--cost": "cost.json", "--results": "results.parquet"}
    likely |= {"--out": "out/o", "--rounds": "out/n.parquet", "--optimum": "optimum.json", "--text": "texts.jsonl"}
    if chance.random() < 0.7:
        return likely.get(name.lower(), chance.choice(_FILES))
    return chance.choice(_PATHS) if name not in ("--out", "--rounds", "--results") else chance.choice(_OUTS)


_OUTS = ("out/o.parquet", "out/o.json", "out", "trace", "/dev/null/x", "/proc/nowhere", "out/\x1b[31m", "", "cost.json")


def _command_line(parser: Parser, chance: Random) -> list[str]:
    """Words for a command: what it must have, some of what it may have, and mistakes now and then."""
    words: list[str] = []
    for option in parser._actions:
        if isinstance(option, argparse._HelpAction | argparse._SubParsersAction):
            continue
        likely = 0.95 if option.required or option.dest in ("trace", "threads") else 0.15
        for _ in range(2 if chance.random() < 0.1 else 1):
            if chance.random() < likely:
                words += _words_of(option, chance)
    if chance.random() < 0.1:
        words.insert(chance.randrange(len(words) + 1), chance.choice(("--nonsense", "-p", "--json=1", "--", "x", "-h")))
    return words


def _words_of(option: argparse.Action, chance: Random) -> list[str]:
    name = chance.choice(option.option_strings) if option.option_strings else ""
    if option.nargs == 0:
        return [name]
    if option.dest == "threads":
        return [name, chance.choice(("1", "1", "1", "2", "0"))]
    value = _chosen(option, chance)
    if not name:
        return [] if value.startswith("-") else [value]
    return [f"{name}={value}"] if chance.random() < 0.5 and name.startswith("--") else [name, value]


def _drawn(chance: Random) -> Command:
    words = [chance.choice([one for one in (*COMMANDS, *command_line.KINDS) if one not in _LEFT_OUT])]
    if words[0] in command_line.KINDS:
        words.append(chance.choice([kind for kind in command_line.KINDS[words[0]][1] if kind not in _KINDS_LEFT_OUT]))
    command = parser_for(*words)
    for word in words:
        assert command.commands is not None
        command = command.commands.choices[word]
    words += _command_line(command, chance)
    words += _kept_small(words)
    return Command(tuple(words), codes=(0, 1) if words[0] in ("confirm", "import") else (0,), figured=False)


def _kept_small(words: list[str]) -> list[str]:
    """What keeps a command that was typed right from taking minutes, or from asking the hub."""
    if words[0] in ("record", "confirm") or words[1:2] == ["dflash"]:
        return ["--target", "nowhere"]
    if words[0] == "optimize" and not any(word.startswith("--trace") for word in words):
        return ["--trace", "trace"]
    if words[0] == "prompts":
        return ["--from", "texts.jsonl"]
    return []


def _nothing(_folder: Path, _chance: Random) -> Damage:
    return Damage("none: the command line itself", possible=True)


_INPUTS = (*_FILES, "timings.csv", "policy.py")

KINDS = (Kind("command-lines", _INPUTS, _nothing, draw=_drawn, share=20),)
