"""What `simlab profile` prints: a few of the numbers it measured, and what to do with them."""

from collections.abc import Sequence
from pathlib import Path

from simlab.cost import PLAIN, STAGES
from simlab.policies.costs.curves import undisturbed_s
from simlab.traces.artefacts.cost import CostFile

_SHOWN = (0, 8, 16, 64, 256, 512)
_USUAL_CONTEXT = 512


def profile_text(path: Path, file: CostFile) -> str:
    """The short report on a cost file whose cells all have samples."""
    context = min(file.contexts, key=lambda one: abs(one - _USUAL_CONTEXT))
    fewest = min(len(seconds) for seconds in file.samples.values())
    return "\n".join(
        (
            f"machine  {file.device}, threads {file.threads}, {file.system}, torch {file.versions.get('torch', '?')}",
            f"target   {file.target.name}, {file.dtype}, temperature {file.temperature:g}",
            f"drafter  {file.drafter.name}, block {file.block_size}",
            "",
            f"Milliseconds of a token of plain decoding, and of a round by its drafted tokens{_together(file)}:",
            "",
            _rounds(file),
            "",
            f"Milliseconds of each stage at a context of {context}:",
            "",
            _stages(file, context),
            "",
            f"Lower quartiles of {fewest} samples or more. The target's pass runs one token more than were drafted.",
            f"Cost file: {path} (cost {file.cost_id}); `simlab inspect {path}` shows all of it.",
            f"Predict speeds with `simlab replay {_batch(file)}--cost {path} -p ddtree:budget=16/32/64`.",
        )
    )


def _together(file: CostFile) -> str:
    return f" in each of {file.batch} texts at a time" if file.batch > 1 else ""


def _batch(file: CostFile) -> str:
    return f"--batch {file.batch} " if file.batch > 1 else ""


def _rounds(file: CostFile) -> str:
    counts = _some(file.node_counts)
    rows = [["context", PLAIN, *map(str, counts)]]
    for context in file.contexts:
        sums = [sum(_ms(file, stage, n, context) for stage in STAGES) for n in counts]
        rows.append([f"{context:,}", *(f"{value:.2f}" for value in (_ms(file, PLAIN, 0, context), *sums))])
    return _table(rows)


def _stages(file: CostFile, context: int) -> str:
    rows = [["drafted", *STAGES, "round"]]
    for n in _some(file.node_counts):
        values = [_ms(file, stage, n, context) for stage in STAGES]
        rows.append([str(n), *(f"{value:.2f}" for value in (*values, sum(values)))])
    return _table(rows)


def _some(counts: Sequence[int]) -> list[int]:
    """A few of the node counts: those nearest to round ones, each once."""
    return sorted({min(counts, key=lambda one: abs(one - wanted)) for wanted in _SHOWN})


def _ms(file: CostFile, stage: str, num_drafted: int, context: int) -> float:

    return 1e3 * undisturbed_s(file.samples[stage, num_drafted, context])


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
