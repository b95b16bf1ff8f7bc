"""Result files: values, rows, files joined, raw bytes; resumed, compared, reported and exported."""

from pathlib import Path
from random import Random

import polars as pl
from attack_cases import Command, Damage, Kind
from damage_bytes import damage_bytes, damage_folder
from damage_parquet import CHANGES, Change, damage_parquet, set_value
from damage_signed import sign_table

RESULTS = "results.parquet"

_MERGED = ("out/m.parquet",)
_REPLAY = ("replay", "--trace", "trace", "--cost", "cost.json", "-p", "ddtree:budget=4/8", "-p", "chain:length=2")

READERS = (
    Command(("compare", RESULTS, "-p", "ddtree:budget=8", "--against", "chain", "--json")),
    Command(("compare", RESULTS, "half.parquet", "-p", "ddtree:budget=8", "--json")),
    Command(("compare", RESULTS, RESULTS, "--measure", "acceptance_length", "--by", "dataset", "--json")),
    Command(("inspect", RESULTS, "--json")),
    Command(("inspect", RESULTS)),
    Command(
        ("report", RESULTS, "--trace", "trace", "--texts", "1", "--out", "out/r.html"), ("out/r.html",), True, slow=True
    ),
    Command(
        ("report", RESULTS, "half.parquet", "--trace", "trace", "--out", "out/r.html"), ("out/r.html",), True, slow=True
    ),
    Command(("export", "--format", "markdown", "--results", RESULTS, "--out", "out/t.md"), ("out/t.md",), True),
    Command(("export", "--format", "latex", "--results", RESULTS, "--columns", "dataset")),
    Command(("merge", RESULTS, "half.parquet", "--out", "out/m.parquet", "--json"), _MERGED),
    Command((*_REPLAY, "--out", RESULTS, "--resume", "--json", "--threads", "1"), (RESULTS,)),
)


_IMPOSSIBLE: dict[str, tuple[object, ...]] = {
    "rounds": (-1, 0, 2**62),
    "drafted": (-5, 2**62),
    "verified": (-1, 0),
    "accepted": (-1, 10**6),
    "committed": (-1, 0),
    "clipped": (-1, 10**6),
    "turn": (-1,),
    "sequence": (-1,),
    "context_length": (-1,),
    "draft_s": (float("nan"), -1.0, float("inf")),
    "verify_s": (float("nan"), -1.0, float("inf")),
    "commit_s": (float("nan"), -1.0, None),
    "select_s": (float("-inf"), None),
    "draws_s": ([float("nan")], [-1.0]),
    "kind": ("guessed", ""),
    "settings": ("{", "[]", "null", "[" * 100_000),
}
"""Values that no replay gives, whoever signs them."""

_STRANGE: dict[str, tuple[object, ...]] = {
    "committed": (10**9,),
    "sequence": (99, 0),
    "context_length": (0,),
    "draft_s": (1e300,),
    "verify_s": (1e300, 0.0),
    "draws_s": ([], [1.0], None),
    "text_id": ("another", "", "\x1b[31m"),
    "draft_id": ("another", None),
    "cost_id": ("another", None),
    "kind": ("measured",),
    "settings": ('{"budget": 10000000000}',),
    "policy": ("", "ddtree:budget=9", "\x1b[2J", "abc\u202edcba", "a\nb", "<script>alert(1)</script>"),
    "policy_id": ("", "0" * 16),
    "name": ("unknown", "hindsight"),
    "stop_reason": ("why", ""),
    "simlab_version": ("", "99.0", "\x1b[31m"),
    "prompt_id": ("math-0", ""),
    "dataset": ("", "a\u202eb"),
}
"""Values that are rarely right."""


def _value_of(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A value that stands there by mistake."""
    return _one_of(chance.choice((_IMPOSSIBLE, _STRANGE)), rows, chance)


def _impossible(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """A value that no replay gives."""
    return _one_of(_IMPOSSIBLE, rows, chance)


def _one_of(values: dict[str, tuple[object, ...]], rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    name = chance.choice(list(values))
    row, value = chance.randrange(rows.height), chance.choice(values[name])
    return set_value(rows, name, row, value), f"{name} of row {row} is {value!r:.60}"


def _join(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    """Rows of the same texts a second time, with other figures."""
    some = rows.sample(chance.randrange(1, rows.height), seed=chance.randrange(1000))
    changed = some.with_columns(pl.col("committed") + 1)
    return pl.concat([rows, chance.choice((some, changed))]), f"{some.height} rows a second time"


_CHANGES: tuple[Change, ...] = (_value_of, _value_of, _value_of, _join)


def _said_of(path: Path) -> dict[str, str]:
    """The metadata of a file, without what polars says of columns."""
    return {key: value for key, value in pl.read_parquet_metadata(path).items() if not key.startswith("ARROW")}


def _results(folder: Path, chance: Random) -> Damage:
    if chance.random() < 0.1:
        both = pl.concat([pl.read_parquet(folder / RESULTS), pl.read_parquet(folder / "half.parquet")])
        both.write_parquet(folder / RESULTS, metadata=_said_of(folder / RESULTS))
        return Damage("joined with the rows of a replay of two prompts")
    if chance.random() < 0.5:
        return damage_parquet(folder / RESULTS, chance, changes=_CHANGES)
    return damage_parquet(folder / RESULTS, chance)


def _signed(folder: Path, chance: Random) -> Damage:
    """Results that were changed and signed: what can stand there may be meant."""
    path, is_impossible = folder / RESULTS, chance.random() < 0.4
    changes: tuple[Change, ...] = (_impossible, _impossible, _join) if is_impossible else (*CHANGES, _value_of)
    damage = damage_parquet(path, chance, changes=changes, footers=0.0)
    signed = sign_table(path)
    possible = signed and not is_impossible
    return Damage(f"{damage.note}{'; signed' if signed else ''}", possible)


def _bytes(folder: Path, chance: Random) -> Damage:
    return damage_bytes(folder / RESULTS, chance)


def _pair(folder: Path, chance: Random) -> Damage:
    """Rounds, or results, that a replay is to go on with."""
    path = folder / "pair" / chance.choice(("n.parquet", "n.parquet", "r.parquet"))
    if chance.random() < 0.3:
        return damage_folder(folder / "pair", chance)
    damage = damage_parquet(path, chance)
    signed = chance.random() < 0.3 and sign_table(path)
    return Damage(f"{damage.note}{'; signed' if signed else ''}", possible=signed)


_OF_PAIR = ("trace", "cost.json", "pair")
_BOTH = ("pair/r.parquet", "pair/n.parquet")
_GOES_ON = (
    *("replay", "--trace", "trace", "--cost", "cost.json", "-p", "ddtree:budget=4", "--threads", "1", "--json"),
    *("--out", "pair/r.parquet", "--rounds", "pair/n.parquet", "--resume"),
)
_RESUMED = (Command(_GOES_ON, _BOTH), Command((*_GOES_ON, "-p", "chain:length=2"), _BOTH))

_FILES = (RESULTS, "half.parquet", "trace", "cost.json")

KINDS = (
    Kind("results", _FILES, _results, READERS, share=10),
    Kind("signed-results", _FILES, _signed, READERS, share=10),
    Kind("rounds", _OF_PAIR, _pair, _RESUMED, share=4),
    Kind("result-bytes", _FILES, _bytes, READERS, share=4),
)
