"""What serving engines leave: kept answers, metrics, results of benchmarks, cost tables.

None of it is signed by simlab, so whatever can be read may be meant.
"""

from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind
from damage_bytes import damage_bytes
from damage_json import damage_json, damage_json_lines

_TRACE = ("--trace", "block4")
_INPUTS = ("block4", "answers.jsonl", "metrics.txt", "bench.json", "sps.json")

_ANSWERS = (
    Command(("crosscheck", "--answers", "answers.jsonl", *_TRACE, "--json"), codes=(0, 1)),
    Command(("crosscheck", "--answers", "answers.jsonl", *_TRACE), codes=(0, 1)),
)
_METRICS = (
    Command(("import", "metrics.txt", *_TRACE, "--first-of-block", "--json"), codes=(0, 1)),
    Command(("import", "metrics.txt", *_TRACE, "--first-of-block"), codes=(0, 1)),
)
_BENCHES = (Command(("import", "bench.json", *_TRACE, "--json"), codes=(0, 1)),)
_STEPS = (Command(("import", "sps.json", "--batch", "2", *_TRACE, "--out", "out/c.json", "--json"), ("out/c.json",)),)


def _answers(folder: Path, chance: Random) -> Damage:
    path = folder / "answers.jsonl"
    if chance.random() < 0.3:
        return damage_bytes(path, chance, possible=True)
    return damage_json_lines(path, chance, possible=True)


def _metrics(folder: Path, chance: Random) -> Damage:
    return damage_bytes(folder / "metrics.txt", chance, possible=True)


def _bench(folder: Path, chance: Random) -> Damage:
    return damage_json(folder / "bench.json", chance, possible=True)


def _steps(folder: Path, chance: Random) -> Damage:
    return damage_json(folder / "sps.json", chance, possible=True)


KINDS = (
    Kind("engine-answers", _INPUTS, _answers, _ANSWERS, share=3),
    Kind("engine-metrics", _INPUTS, _metrics, _METRICS, share=3),
    Kind("engine-benchmarks", _INPUTS, _bench, _BENCHES, share=3),
    Kind("engine-cost-tables", _INPUTS, _steps, _STEPS, share=3),
)
