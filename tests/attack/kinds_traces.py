"""Traces: their manifest, their tables with digests left alone and with digests mended, served ones, raw bytes."""

import json
from pathlib import Path
from random import Random

import polars as pl
from attack_cases import Command, Damage, Kind
from attack_run import ADDRESS
from attack_server import FAULT, FAULTS
from damage_bytes import damage_bytes, damage_folder
from damage_json import damage_json, damage_json_values
from damage_parquet import CHANGES, Change, damage_parquet, set_value
from damage_signed import sign_json

from simlab.errors import SimlabError
from simlab.traces.format.documents import with_digest
from simlab.traces.format.files import SEQUENCES, TOKEN_TEXTS, file_sha256
from simlab.traces.inspect import check_trace

TRACE = "trace"
MANIFEST = "manifest.json"

_OF_TRACE = ("--trace", TRACE)
_PRICED = (*_OF_TRACE, "--cost", "cost.json")
_ONE = ("--threads", "1")

READERS = (
    Command(("replay", *_OF_TRACE, "-p", "ddtree:budget=8", "--json", *_ONE)),
    Command(("replay", *_PRICED, "-p", "ddtree:budget=8", "-p", "caddtree:budget=16", "--json", *_ONE)),
    Command(("inspect", TRACE, "--json")),
    Command(("inspect", TRACE, "--json")),
    Command(("replay", *_OF_TRACE, "-p", "chain", "--out", "out/r.parquet", *_ONE), ("out/r.parquet",)),
    Command(("replay", *_OF_TRACE, "-p", "chain", "--rounds", "out/n.parquet", *_ONE), ("out/n.parquet",)),
    Command(("replay", *_PRICED, "-p", "ddtree:budget=4", "--batch", "2", "--json", *_ONE)),
    Command(("compare", TRACE, TRACE, "-p", "ddtree:budget=8", "--json")),
    Command(
        ("report", *_PRICED, "-p", "chain", "--texts", "1", "--out", "out/r.html"), ("out/r.html",), True, slow=True
    ),
    Command(("export", "--format", "conformance", *_OF_TRACE, "-p", "chain", "--limit", "2")),
    Command(("export", "--format", "vllm", *_OF_TRACE, "-p", "chain", "--out", "out/v.json"), ("out/v.json",)),
    Command(("study", "scoring", *_PRICED, "-p", "ddtree:budget=8", "--nodes", "16", "--json")),
    Command(("study", "curves", *_PRICED, "--budget", "8", "--edges", "raw", "--json")),
    Command(("optimize", *_PRICED, "-p", "ddtree:budget=4/8", "--no-halving", "--json", *_ONE)),
    Command(("train", "calibration", *_OF_TRACE, "--out", "out/c.json", "--json"), ("out/c.json",), slow=True),
    Command(("train", "ranks", *_OF_TRACE, "--out", "out/c.json", "--json"), ("out/c.json",)),
    Command(("train", "ngram", *_OF_TRACE, "--out", "out/n.parquet"), ("out/n.parquet",)),
)
"""Commands that read a whole trace."""


def tables(folder: Path) -> list[Path]:
    """The Parquet files of a trace that every reader reads."""
    return sorted(folder.glob("*.parquet"))


def mend_files(folder: Path) -> None:
    """Make the manifest agree with the bytes of every file, as somebody would who changed them on purpose."""
    path = folder / MANIFEST
    values = json.loads(path.read_text())
    for name in values["contents"]["files"]:
        if (folder / name).is_file():
            size, digest = (folder / name).stat().st_size, file_sha256(folder / name)
            values["contents"]["files"][name] = {"num_bytes": size, "sha256": digest}
    path.write_text(json.dumps(with_digest(values), indent=2))


def _signed_manifest(folder: Path, chance: Random) -> Damage:
    return manifest_damage(folder / TRACE, chance)


def manifest_damage(trace: Path, chance: Random) -> Damage:
    """A manifest that was changed and signed: of what it says, only what the files can prove is right."""
    path = trace / MANIFEST
    data, note = damage_json_values(path.read_text(encoding="utf-8"), chance)
    path.write_bytes(data)
    signed = sign_json(path)
    return Damage(f"{path.name}: {note}{'; signed' if signed else ''}", possible=signed)


def _manifest(folder: Path, chance: Random) -> Damage:
    return damage_json(folder / TRACE / MANIFEST, chance)


def _table(folder: Path, chance: Random) -> Damage:
    return damage_parquet(chance.choice(tables(folder / TRACE)), chance)


def _mended(folder: Path, chance: Random) -> Damage:
    """A changed table under a manifest that agrees with its bytes; the ids of its content are left alone."""
    if chance.random() < 0.5:
        path = folder / TRACE / chance.choice(("draft-synthetic-0000.parquet", "draft-synthetic-0001.parquet"))
    else:
        path = chance.choice(tables(folder / TRACE))
    changes = _OF_DRAFT if path.name.startswith("draft") and chance.random() < 0.4 else CHANGES
    damage = damage_parquet(path, chance, _is_outside_ids(path), changes)
    mend_files(folder / TRACE)
    another = damage.possible or is_another_trace(folder / TRACE, path.name)
    return Damage(f"{damage.note}; sizes and digests of files mended", another, mended=True)


def is_another_trace(trace: Path, changed: str) -> bool:
    """Whether a change is one that `simlab inspect` alone tells: by ids of content, or by what is said of prompts.

    docs/reference/trace_format.md lists what is checked on every read, and what is not.
    """
    try:
        check_trace(trace)
    except SimlabError as error:
        return changed == SEQUENCES or " of its content is " in str(error)
    except pl.exceptions.PanicException:
        return False
    return False


def _is_outside_ids(path: Path) -> bool:
    """Whether a file is covered by the digest of its bytes alone, so that nobody can tell that it was changed."""
    return path.name == TOKEN_TEXTS


def _rank(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    row = chance.randrange(rows.height)
    ranks = rows["true_rank"][row].to_list()
    at = chance.randrange(len(ranks))
    ranks[at] = chance.choice((-1, 0, 1, 63, 64, 199, 200, 70_000, 2**31 - 1, None))
    return set_value(rows, "true_rank", row, ranks), f"true_rank[{at}] of row {row} is {ranks[at]}"


def _unsorted(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    row = chance.randrange(rows.height)
    values = rows["log_probs"][row].to_list()
    at = chance.randrange(len(values) - 1)
    values[at], values[at + 1] = values[at + 1], values[at]
    return set_value(rows, "log_probs", row, values), f"log_probs {at} and {at + 1} of row {row} swapped"


def _candidate(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    row = chance.randrange(rows.height)
    ids = rows["ids"][row].to_list()
    at = chance.randrange(len(ids))
    ids[at] = chance.choice((-1, ids[at - 1], 200, 2**31 - 1, (ids[at] + 1) % 200))
    return set_value(rows, "ids", row, ids), f"ids[{at}] of row {row} is {ids[at]}"


def _count(rows: pl.DataFrame, chance: Random) -> tuple[pl.DataFrame, str]:
    row = chance.randrange(rows.height)
    counts = rows["counts"][row].to_list()
    at = chance.randrange(len(counts))
    counts[at] = chance.choice((0, 1, 63, counts[at] + 1, counts[at] - 1, 65_535))
    return set_value(rows, "counts", row, counts), f"counts[{at}] of row {row} is {counts[at]}"


_OF_DRAFT: tuple[Change, ...] = (_rank, _unsorted, _candidate, _count)


def _bomb(folder: Path, chance: Random) -> Damage:
    """A few kilobytes that are gigabytes when they are read, under a manifest that agrees with them."""
    name = chance.choice(("ids", "log_probs", "texts"))
    place = {"texts": "sequences.parquet"}.get(name, "draft-synthetic-0000.parquet")
    (folder / "bombs" / f"{name}.parquet").replace(folder / TRACE / place)
    mend_files(folder / TRACE)
    return Damage(f"{place} with a list of a hundred million {name}; sizes and digests of files mended", mended=True)


def _bytes(folder: Path, chance: Random) -> Damage:
    return damage_folder(folder / TRACE, chance)


def _mended_bytes(folder: Path, chance: Random) -> Damage:
    path = chance.choice(tables(folder / TRACE))
    damage = damage_bytes(path, chance, _is_outside_ids(path))
    mend_files(folder / TRACE)
    another = damage.possible or is_another_trace(folder / TRACE, path.name)
    return Damage(f"{damage.note}; sizes and digests of files mended", another, mended=True)


def _served(folder: Path, chance: Random) -> Damage:
    """Changed files behind an address, or a server that fails."""
    if chance.random() < 0.6:
        return damage_folder(folder / TRACE, chance)
    fault, befalls = chance.choice(FAULTS), chance.choice(("", "manifest", "sequences", "tokens-0000", "draft", "0001"))
    (folder / FAULT).write_text(f"{fault}\n{befalls}")
    return Damage(f"the server's fault: {fault}, of files with {befalls!r} in their names")


_SERVED = (
    Command(("replay", "--trace", f"{ADDRESS}/trace", "-p", "ddtree:budget=8", "--json", *_ONE)),
    Command(("inspect", f"{ADDRESS}/trace", "--json")),
)

_FILES = (TRACE, "cost.json")

KINDS = (
    Kind("manifests", _FILES, _manifest, READERS, share=12),
    Kind("signed-manifests", _FILES, _signed_manifest, READERS, share=8),
    Kind("tables", _FILES, _table, READERS, share=4),
    Kind("mended-tables", _FILES, _mended, READERS, share=16),
    Kind("bombs", (*_FILES, "bombs"), _bomb, READERS, share=1),
    Kind("trace-bytes", _FILES, _bytes, READERS, share=6),
    Kind("mended-bytes", _FILES, _mended_bytes, READERS, share=6),
    Kind("served-traces", (TRACE,), _served, _SERVED, share=2, serves=True),
)
