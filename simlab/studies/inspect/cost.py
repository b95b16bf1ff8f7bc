"""What a cost file holds, for people and for scripts."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simlab.analysis.table.text import aligned, within_width
from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, channel_stage
from simlab.grid import STEPS_PER_NAT
from simlab.policies.costs.cell_prices import cell_prices
from simlab.policies.costs.roofline import flatness, flatness_warning
from simlab.policies.edges.correction import cost_of, mapped_cost
from simlab.studies.inputs.price_resolution import speedup_resolution
from simlab.studies.inputs.prices import cost_table_of, model_name
from simlab.traces.artefacts.cost import Cell, CostChannel, CostFile
from simlab.traces.artefacts.ngram import NGramFile
from simlab.traces.artefacts.table import TableFile

# What a fitted table and the counts of a 3-gram hold, for people and for scripts.


MOST_SHOWN = 4
"""Ranks, and most frequent rows of each kind."""

_PLACES = ("spine", "elsewhere")
_PROBABILITIES = (0.1, 0.5, 0.9)
_LAST_TOKENS = ("of one token", "of two", "of three")


def table_json(path: Path, file: TableFile) -> dict[str, object]:
    """All of it; its ``kind`` is that of the table, as `simlab train` prints it."""
    first: dict[str, object] = {"kind": file.kind, "path": str(path), "table_id": file.table_id}
    return first | {"shape": list(file.values.shape)} | file.to_json()


def table_text(path: Path, file: TableFile) -> str:
    """What it is of, and the beginning of its values by depth."""
    shape = " x ".join(map(str, file.values.shape))
    lines = [
        f"fitted table {path}",
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
        probs = [
            _mapped(prob, float(classes[0][0]), float(classes[0][1])) for classes in by_place for prob in _PROBABILITIES
        ]
        lines.append(f"{depth + 1:>5}{''.join(f'{prob:>15.4f}' for prob in probs)}")
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


def ngram_json(path: Path, file: NGramFile) -> dict[str, object]:
    """What it is of, how many rows of each kind, and the most frequent of each."""
    rows = [
        {"num_rows": number, "most_frequent": [{"tokens": tokens, "count": count} for tokens, count in most]}
        for number, most in _by_length(file)
    ]
    return {"kind": "ngram", "path": str(path)} | file.facts() | {"num_rows": len(file.counts), "by_length": rows}


def ngram_text(path: Path, file: NGramFile) -> str:
    """What it is of, how many rows of each kind, and the most frequent of each."""
    lines = [
        f"3-gram     {path}",
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
    by_length = []
    for length in (1, 2, 3):
        indices = np.flatnonzero(whole & ((columns >= 0).sum(axis=0) == length))
        best = indices[np.argsort(-file.counts[indices], kind="stable")[:MOST_SHOWN]]
        most = [(columns[3 - length :, index].tolist(), int(file.counts[index])) for index in best]
        by_length.append((len(indices), most))
    return by_length


_NUMBERS = ("drafted tokens", "drafted tokens, or units of a channel")
"""What the rows of the table count, without and with channels."""


def cost_json(path: Path, file: CostFile) -> dict[str, object]:
    """Settings and keys of a cost file, and the price of each cell in seconds; null where that was not timed."""
    settings = {name: value for name, value in file.to_json().items() if name not in ("format", "samples")}
    prices = [
        {
            "stage": stage,
            "num_drafted": num_drafted,
            "context": context,
            "price_s": None if stage == PLAIN and not file.has_plain else value,
        }
        for (stage, num_drafted, context), value in _prices_s(file).items()
    ]
    return {
        "kind": "cost",
        "path": str(path),
        "cost_id": file.cost_id,
        "verify_key": file.verify_key(),
        "draft_key": file.draft_key(),
        "complete": file.is_complete,
        "flatness": _flatness(file),
        "known": speedup_resolution(file).row() if file.is_complete else None,
        "settings": settings,
        "prices": prices,
    }


def cost_text(path: Path, file: CostFile) -> str:
    """Settings and keys of a cost file, and the prices of each stage by drafted tokens and context."""
    missing, flat = len(file.missing()), _flatness(file)
    machine = file.device if file.is_imported else f"{file.device}, {file.threads_text}, {file.system}"
    lines = [
        f"cost file {path}",
        f"id         {file.cost_id} (verify key {file.verify_key()}, draft key {file.draft_key()})",
        f"machine    {machine}",
        f"target     {model_name(file.target)}, {file.dtype}, attention {file.attention}, {file.execution}",
        f"drafter    {model_name(file.drafter)}, block {file.block_size}",
        f"sampling   temperature {file.temperature:g}, top-p {file.top_p:g}, top-k {file.top_k}",
        f"versions   {', '.join(f'{name} {version}' for name, version in file.versions.items()) or 'not stated'}",
        f"samples    {sum(map(len, file.samples.values())):,} in {len(file.samples):,} cells",
    ]
    if file.is_imported and max(map(len, file.samples.values()), default=0) <= 1:
        lines.append("prices     imported, one sample a cell: how noisy they are is not known")
    elif file.is_complete:
        lines += [
            f"{name.ljust(10)} {line}"
            for name, line in zip(("prices", "", ""), speedup_resolution(file).lines(), strict=True)
        ]
    if not file.has_plain:
        lines.append("plain      autoregressive decoding was not timed, so there are no speedups over it")
    if missing:
        command = shlex.join(["simlab", "profile", "--out", str(path), "--resume"])
        lines.append(f"unfinished {missing:,} cells are missing; finish it with `{command}`")
    lines += [f"channel    {name}: {_made(channel)}" for name, channel in sorted(file.channels.items())]
    lines += [f"{'note'.ljust(10)} {note}" for note in file.notes]
    if flat is not None and (warning := flatness_warning(flat)):
        lines.append(f"WARNING    {warning}")
    lines += [
        "",
        f"Milliseconds, by stage and {_NUMBERS[bool(file.channels)]}; to the right by tokens before the root:",
        "",
    ]
    rows = _rows(file)
    # A command is copied, so its line stays whole.
    lines = [line if "`" in line else within_width(line) for line in lines]
    return "\n".join([*lines, aligned(rows, [True, *[False] * (len(rows[0]) - 1)])])


def _made(channel: CostChannel) -> str:
    """What made a channel, and how it was bounded."""
    settings = ", ".join(f"{key} {value}" for key, value in channel.settings.items())
    units = ", ".join(map(str, channel.units))
    return f"{channel.kind} of {model_name(channel.producer)}, {settings}; {channel.counted} {units}"


def _flatness(file: CostFile) -> dict[str, Any] | None:
    """How flat the target's passes are, and whether they look launch-bound; None of a file that is not finished."""
    return flatness(cost_table_of(file), file.device) if file.is_complete else None


def _rows(file: CostFile) -> list[list[str]]:
    prices_s = _prices_s(file)
    rows = [["", "drafted", *(f"{context:,}" for context in file.contexts)]]
    rows.append([PLAIN, "0", *(_cells(file, prices_s, PLAIN, 0) if file.has_plain else ["-"] * len(file.contexts))])
    numbers = dict.fromkeys(GRID_STAGES, file.node_counts)
    numbers |= {channel_stage(name): channel.units for name, channel in sorted(file.channels.items())}
    for stage, counts in numbers.items():
        cells = [_cells(file, prices_s, stage, num) for num in counts]
        if len(counts) > 1 and all(row == cells[0] for row in cells):
            rows.append([stage, f"{counts[0]}-{counts[-1]}", *cells[0]])
        else:
            rows += [
                [stage if index == 0 else "", str(num), *row]
                for index, (num, row) in enumerate(zip(counts, cells, strict=True))
            ]
    return rows


def _cells(file: CostFile, prices_s: Mapping[Cell, float], stage: str, num_drafted: int) -> list[str]:
    values = (prices_s.get((stage, num_drafted, context)) for context in file.contexts)
    return ["-" if value is None else f"{1000 * value:.3f}" for value in values]


def _prices_s(file: CostFile) -> dict[Cell, float]:
    prices = cell_prices(file.samples, file.visits)
    return {cell: prices[cell] for cell in file.cells() if cell in prices}
