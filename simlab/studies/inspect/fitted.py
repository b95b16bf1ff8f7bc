"""What a fitted table and the counts of a 3-gram hold, for people and for scripts."""

import math
from pathlib import Path

import numpy as np

from simlab.arrays import Doubles
from simlab.grid import STEPS_PER_NAT
from simlab.policies.edges.correction import cost_of
from simlab.policies.edges.rank_classes import mapped_cost
from simlab.studies.inputs.prices import model_name
from simlab.traces.artefacts.ngram import NGramFile
from simlab.traces.artefacts.table import TableFile

MOST_SHOWN = 4
"""Ranks, and most frequent rows of each kind."""

_PLACES = ("spine", "elsewhere")
_PROBABILITIES = (0.1, 0.5, 0.9)
_LAST_TOKENS = ("of one token", "of two", "of three")


def table_json(place: Path, file: TableFile) -> dict[str, object]:
    """All of it; its ``kind`` is that of the table, as `simlab train` prints it."""
    first: dict[str, object] = {"kind": file.kind, "path": str(place), "table_id": file.table_id}
    return first | {"shape": list(file.values.shape)} | file.to_json()


def table_text(place: Path, file: TableFile) -> str:
    """What it is of, and the beginning of its values by depth."""
    shape = " x ".join(map(str, file.values.shape))
    lines = [
        f"fitted table {place}",
        f"kind       {file.kind}, {len(file.values)} depths, {file.values.size:,} values ({shape})",
        f"id         {file.table_id}",
        f"target     {model_name(file.target)}",
        f"drafter    {model_name(file.drafter)}, block {file.block_size}",
        f"fitted on  text {file.text_id}, draft set {file.draft_id}, {file.num_positions:,} positions",
        "",
    ]
    rows = _calibration(file.values) if file.kind == "calibration" else _ranks(file.values)
    return "\n".join([*lines, *rows])


def _calibration(values: Doubles) -> list[str]:
    """What the map makes of some probabilities of first candidates."""
    heads = "".join(f"{f'{name} {prob:g}':>15}" for name in _PLACES for prob in _PROBABILITIES)
    lines = ["What it makes of a first candidate's probability, below the greedy path and elsewhere:", ""]
    lines.append(f"depth{heads}")
    for depth, by_place in enumerate(values):
        found = [
            _mapped(prob, float(classes[0][0]), float(classes[0][1])) for classes in by_place for prob in _PROBABILITIES
        ]
        lines.append(f"{depth + 1:>5}{''.join(f'{prob:>15.4f}' for prob in found)}")
    return lines


def _mapped(probability: float, slope: float, intercept: float) -> float:
    """A probability after a logistic map, as policies have it."""
    return math.exp(-mapped_cost(cost_of(math.log(probability)), slope, intercept) / STEPS_PER_NAT)


def _ranks(values: Doubles) -> list[str]:
    """The share of true tokens by rank."""
    shown = min(MOST_SHOWN, values.shape[1])
    names = "".join(f"{f'rank {rank}':>9}" for rank in range(shown))
    lines = ["Share of true tokens by rank, where the path was right so far:", ""]
    lines.append(f"depth{names}{'others':>9}{'none':>9}")
    for depth, row in enumerate(values):
        shares = [*row[:shown].tolist(), float(row[shown:].sum()), 1.0 - float(row.sum())]
        lines.append(f"{depth + 1:>5}{''.join(f'{share:>9.4f}' for share in shares)}")
    return lines


def ngram_json(place: Path, file: NGramFile) -> dict[str, object]:
    """What it is of, how many rows of each kind, and the most frequent of each."""
    rows = [
        {"num_rows": number, "most_frequent": [{"tokens": tokens, "count": count} for tokens, count in most]}
        for number, most in _by_length(file)
    ]
    return {"kind": "ngram", "path": str(place)} | file.facts() | {"num_rows": len(file.counts), "by_length": rows}


def ngram_text(place: Path, file: NGramFile) -> str:
    """What it is of, how many rows of each kind, and the most frequent of each."""
    lines = [
        f"3-gram     {place}",
        f"id         {file.ngram_id}",
        f"tokenizer  {file.tokenizer_digest}, vocabulary {file.vocab_size:,}",
        f"counted    {file.num_tokens:,} tokens of {file.num_texts:,} texts, from {file.source}",
        f"left out   pairs and triples that came less than {file.min_count} times",
        f"rows       {len(file.counts):,}",
        "",
        "Rows by length, and the most frequent of each, as token ids:",
        "",
    ]
    for name, (number, most) in zip(_LAST_TOKENS, _by_length(file), strict=True):
        shown = ";  ".join(f"{' '.join(map(str, tokens))} ({count:,})" for tokens, count in most)
        lines.append(f"{name:<13}{number:>9,}  {shown}")
    return "\n".join(lines)


def _by_length(file: NGramFile) -> list[tuple[int, list[tuple[list[int], int]]]]:
    """How many rows of one, two and three tokens there are, and the most frequent with their counts."""
    columns = np.stack([file.firsts, file.seconds, file.thirds])
    whole = file.thirds >= 0
    found = []
    for length in (1, 2, 3):
        places = np.flatnonzero(whole & ((columns >= 0).sum(axis=0) == length))
        best = places[np.argsort(-file.counts[places], kind="stable")[:MOST_SHOWN]]
        most = [(columns[3 - length :, place].tolist(), int(file.counts[place])) for place in best]
        found.append((len(places), most))
    return found
