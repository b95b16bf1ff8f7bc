"""What a cost file holds, for people and for scripts."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from simlab.cost import GRID_STAGES, PLAIN, channel_stage
from simlab.policies.costs.cell_prices import cell_prices
from simlab.policies.costs.launch_bound import Flatness, flatness
from simlab.studies.inputs.price_noise import known_speeds
from simlab.studies.inputs.prices import cost_table_of, model_name
from simlab.traces.artefacts.cost import Cell, CostFile
from simlab.traces.artefacts.cost_channel import CostChannel

_NUMBERS = ("drafted tokens", "drafted tokens, or units of a channel")
"""What the rows of the table count, without and with channels."""


def cost_json(place: Path, file: CostFile) -> dict[str, object]:
    """Settings and keys of a cost file, and the price of each cell in seconds."""
    settings = {name: value for name, value in file.to_json().items() if name not in ("format", "samples")}
    prices = [
        {"stage": stage, "num_drafted": num_drafted, "context": context, "price_s": value}
        for (stage, num_drafted, context), value in _prices_s(file).items()
    ]
    return {
        "kind": "cost",
        "path": str(place),
        "cost_id": file.cost_id,
        "verify_key": file.verify_key(),
        "draft_key": file.draft_key(),
        "complete": file.is_complete,
        "flatness": _flatness_json(file),
        "known": known_speeds(file).row() if file.is_complete else None,
        "settings": settings,
        "prices": prices,
    }


def cost_text(place: Path, file: CostFile) -> str:
    """Settings and keys of a cost file, and the prices of each stage by drafted tokens and context."""
    missing, flatness = len(file.missing()), _flatness(file)
    lines = [
        f"cost file {place}",
        f"id         {file.cost_id} (verify key {file.verify_key()}, draft key {file.draft_key()})",
        f"machine    {_machine(file)}",
        f"target     {model_name(file.target)}, {file.dtype}, attention {file.attention}, {file.execution}",
        f"drafter    {model_name(file.drafter)}, block {file.block_size}",
        f"sampling   temperature {file.temperature:g}, top-p {file.top_p:g}, top-k {file.top_k}",
        f"versions   {', '.join(f'{name} {version}' for name, version in file.versions.items())}",
        f"samples    {sum(map(len, file.samples.values())):,} in {len(file.samples):,} cells",
    ]
    if file.is_of_others:
        lines.append("prices     others' timings, one value to a cell: how noisy they are is not known")
    elif file.is_complete:
        lines += [
            f"{name.ljust(10)} {line}"
            for name, line in zip(("prices", "", ""), known_speeds(file).lines(), strict=True)
        ]
    if missing:
        command = shlex.join(["simlab", "profile", "--out", str(place), "--resume"])
        lines.append(f"unfinished {missing:,} cells are missing; finish it with `{command}`")
    lines += [f"channel    {name}: {_made(one)}" for name, one in sorted(file.channels.items())]
    lines += [f"{'note'.ljust(10)} {note}" for note in file.notes]
    if flatness is not None and flatness.warning:
        lines.append(f"WARNING    {flatness.warning}")
    lines += [
        "",
        f"Milliseconds, by stage and {_NUMBERS[bool(file.channels)]}; to the right by tokens before the root:",
        "",
    ]
    return "\n".join([*lines, *_aligned(_rows(file))])


def _made(channel: CostChannel) -> str:
    """What made a channel, and how it was bounded."""
    settings = ", ".join(f"{key} {value}" for key, value in channel.settings.items())
    units = ", ".join(map(str, channel.units))
    return f"{channel.kind} of {model_name(channel.producer)}, {settings}; {channel.counted} {units}"


def _machine(file: CostFile) -> str:
    """The device, and what else is known of it."""
    if file.is_imported:
        return file.device
    return f"{file.device}, {file.threads_text}, {file.system}"


def _flatness(file: CostFile) -> Flatness | None:
    """None of a file that is not finished."""
    return flatness(cost_table_of(file), file.device) if file.is_complete else None


def _flatness_json(file: CostFile) -> dict[str, object] | None:
    """How flat the target's passes are, and whether they look launch-bound; null: the prices end too early to tell."""
    found = _flatness(file)
    return None if found is None else {**asdict(found), "looks_launch_bound": found.looks_launch_bound}


def _rows(file: CostFile) -> list[list[str]]:
    prices_s = _prices_s(file)
    rows = [["", "drafted", *(f"{context:,}" for context in file.contexts)]]
    rows.append([PLAIN, "0", *_cells(file, prices_s, PLAIN, 0)])
    numbers = dict.fromkeys(GRID_STAGES, file.node_counts)
    numbers |= {channel_stage(name): one.units for name, one in sorted(file.channels.items())}
    for stage, counts in numbers.items():
        for num in counts:
            name = stage if num == counts[0] else ""
            rows.append([name, str(num), *_cells(file, prices_s, stage, num)])
    return rows


def _cells(file: CostFile, prices_s: Mapping[Cell, float], stage: str, num_drafted: int) -> list[str]:
    found = (prices_s.get((stage, num_drafted, context)) for context in file.contexts)
    return ["-" if value is None else f"{1000 * value:.3f}" for value in found]


def _prices_s(file: CostFile) -> dict[Cell, float]:

    prices = cell_prices(file.samples, file.visits)
    return {cell: prices[cell] for cell in file.cells() if cell in prices}


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(cells)
        ).rstrip()
        for row in rows
        for cells in [list(zip(row, widths, strict=True))]
    ]
