"""Seconds of passes that somebody else measured, as a cost file.

What is read is CSV with a line of names, or a JSON list of objects: ``nodes``, ``context``, ``seconds``, and ``batch``
where it is not 1. Lines of CSV that begin with # are remarks; they say where the figures come from and stay in the
cost file. Rows of one cell are samples of it.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.cost.stages import LEAST_S, MOST_S
from simlab.errors import CostError, named_or_listed, reason_of
from simlab.limits.typed_numbers import MOST_COUNT, finite_number, shown, whole_number
from simlab.traces.artefacts.cost import (
    EXAMPLES,
    IMPORTED,
    MOST_DRAFTED,
    UNKNOWN,
    Cell,
    CostFile,
    check_not_alike,
    write_cost_file,
)
from simlab.traces.artefacts.engine_tables import AdditiveSteps, BenchCell, EngineTable, SampledSteps, StepCurves
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.untrusted.json_text import file_text, parse_json

PUBLISHED = Path(str(files("simlab.traces"))) / "data" / "published"
"""Where the published timings lie that are shipped with simlab."""

ROOT_INCLUDED, DRAFTED_ONLY = "root-included", "drafted-only"
COUNTS = (ROOT_INCLUDED, DRAFTED_ONLY)
"""What ``nodes`` counts: tokens of the pass, the root among them, or drafted tokens, one fewer."""

_NEEDED = ("nodes", "context", "seconds")


class PassTiming(NamedTuple):
    """Seconds of one measured pass of the target."""

    nodes: int
    context: int
    batch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PassTimings:
    """What a file of timings holds.

    Attributes:
        name: of the file.
        remarks: its lines that begin with #, put together.
        rows: at least one.
        within: stages whose seconds are in those of the rows, undivided; they cost nothing beside.
    """

    name: str
    remarks: tuple[str, ...]
    rows: tuple[PassTiming, ...]
    within: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedFor:
    """What timings are said to be of; nothing in them can prove it.

    Attributes:
        target, drafter, block_size, temperature, top_k, top_p: of the trace that is to be priced.
        machine: the device's name; empty: unknown.
        dtype: of the models' arithmetic.
    """

    target: ModelInfo
    drafter: ModelInfo
    block_size: int
    temperature: float
    top_k: int
    top_p: float
    machine: str
    dtype: str


def published_timings() -> list[Path]:
    """The published timings that are shipped with simlab, by name."""
    return sorted(PUBLISHED.glob("*.csv"))


def read_timings(path: str | Path) -> PassTimings:
    """Timings from CSV or JSON.

    Args:
        path: a file, or the name of one that comes with simlab.

    Raises:
        CostError: it cannot be read, or a row is no timing; the sentence says which.
    """
    shipped = {timing.stem: timing for timing in published_timings()}
    place = Path(path) if Path(path).exists() else shipped.get(str(path), Path(path))
    try:
        text = file_text(place, "utf-8-sig")
    except FileNotFoundError as error:
        listed = f"{', '.join(shipped)} come with simlab"
        raise CostError(
            f"expected timings at {path}; there are none{named_or_listed(str(path), shipped, listed)}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CostError(f"{path} could not be read ({reason_of(error)}); expected CSV or JSON") from error
    is_json = text.lstrip()[:1] in ("[", "{")
    remarks, rows = ((), _json_rows(text, path)) if is_json else _csv_rows(text, path)
    if not rows:
        raise CostError(f"{path} has no rows; expected columns {', '.join(_NEEDED)}, and batch where it is not 1")
    for where, row in rows:
        _check_names(row, f"{path}, {where}" if is_json else str(path))
    return PassTimings(place.name, remarks, tuple(_timing(row, f"{path}, {where}") for where, row in rows))


def imported_cost_file(
    timings: PassTimings, counts: str, about: ImportedFor, constants: Mapping[str, float], batch: int | None = None
) -> CostFile:
    """A finished cost file of timings; its notes say what it was made of and what is not in it.

    Args:
        timings: of the target's pass.
        counts: one of ``COUNTS``.
        about: what they are said to be of.
        constants: seconds of stages that were given beside them, each one number for all cells; other stages are
            free, and a token of plain decoding takes as long as a pass of the root alone.
        batch: take the rows of so many texts at a time; None: all rows are of one number.
    """
    twice = [stage for stage in constants if stage in timings.within]
    if twice:
        raise CostError(
            f"seconds in {timings.name} are those of whole rounds, so {', '.join(twice)} is in them already; leave out "
            f"--{twice[0]}-s"
        )
    batch = _one_batch(timings, batch)
    cells, notes = _cells(timings, counts, batch)
    contexts, numbers = sorted({c for _, c in cells}), sorted({n for n, _ in cells})
    num_missing = len(contexts) * len(numbers) - len(cells)
    if num_missing:
        n, c = next((n, c) for c in contexts for n in numbers if (n, c) not in cells)
        shown = n + (counts == ROOT_INCLUDED)
        raise CostError(
            f"{timings.name} has no row of {shown} nodes at context {c:,}, and {num_missing} such gaps in all; every "
            "number of nodes must be timed at every context"
        )
    if numbers[0] > 0:
        notes.append(f"a pass of fewer than {numbers[0]} drafted tokens was not timed and costs what {numbers[0]} cost")
        cells |= {(0, c): cells[numbers[0], c] for c in contexts}
        numbers.insert(0, 0)
    samples: dict[Cell, tuple[float, ...]] = {("verify", n, c): seconds for (n, c), seconds in cells.items()}
    for stage in (one for one in GRID_STAGES if one != "verify"):
        samples |= {(stage, n, c): (constants.get(stage, 0.0),) for n in numbers for c in contexts}
    samples |= {(PLAIN, 0, c): (constants[PLAIN],) if PLAIN in constants else cells[0, c] for c in contexts}
    file = CostFile(
        device=", ".join([*filter(None, [about.machine]), f"imported from {timings.name}"]),
        threads=1,
        system=UNKNOWN,
        target=about.target,
        drafter=about.drafter,
        block_size=about.block_size,
        dtype=about.dtype,
        attention=UNKNOWN,
        temperature=about.temperature,
        top_k=about.top_k,
        top_p=about.top_p,
        versions={},
        contexts=tuple(contexts),
        node_counts=tuple(numbers),
        repeats=max(map(len, cells.values())),
        execution=IMPORTED,
        visits=Visits(1, 1),
        batch=batch,
        samples=samples,
        notes=(*timings.remarks, *notes, *_stage_notes(constants, timings.within)),
    )
    check_not_alike(file, timings.name)
    return file


def _one_batch(timings: PassTimings, batch: int | None) -> int:
    found = sorted({row.batch for row in timings.rows})
    shown = ", ".join(map(str, found))
    if batch is None and len(found) > 1:
        raise CostError(f"{timings.name} has timings of {shown} texts at a time; choose one with --batch N")
    if batch is not None and batch not in found:
        raise CostError(f"{timings.name} has no timings of {batch} texts at a time; it has those of {shown}")
    return found[0] if batch is None else batch


def _cells(timings: PassTimings, counts: str, batch: int) -> tuple[dict[tuple[int, int], tuple[float, ...]], list[str]]:
    """Samples by drafted tokens and context, and how nodes were counted."""
    shift = int(counts == ROOT_INCLUDED)
    found: dict[tuple[int, int], tuple[float, ...]] = {}
    for row in timings.rows:
        if row.nodes < shift:
            raise CostError(
                f"{timings.name} has a pass of {row.nodes} nodes, and with the root counted the fewest are 1; "
                f"it may need --counts {DRAFTED_ONLY}"
            )
        if row.batch == batch:
            cell = (row.nodes - shift, row.context)
            found[cell] = (*found.get(cell, ()), row.seconds)
    said = "the root among them, one more than drafted tokens" if shift else "the root not among them"
    return found, [f"nodes were counted {counts}: {said}"]


def _stage_notes(constants: Mapping[str, float], within: Sequence[str]) -> list[str]:
    notes = [
        f"{'a token of plain decoding' if stage == PLAIN else stage} takes {seconds:g} s everywhere, as given"
        for stage, seconds in constants.items()
    ]
    if within:
        notes.append(f"{', '.join(within)}: within the seconds of verify, which are those of whole rounds")
    free = [stage for stage in GRID_STAGES if stage != "verify" and stage not in {*constants, *within}]
    if free:
        notes.append(f"{', '.join(free)}: not given, so they cost nothing here and speeds are too high")
    if PLAIN not in constants:
        drafter = ", the drafter in it, so speedups are too high" if within else ""
        notes.append(f"plain decoding was not given; a token takes as long as the shortest pass{drafter}")
    return notes


def _csv_rows(text: str, path: str | Path) -> tuple[tuple[str, ...], list[tuple[str, Mapping[str, object]]]]:
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    remark = " ".join(line.lstrip("# ") for _, line in lines if line.startswith("#"))
    rows = [(number, next(csv.reader([line]))) for number, line in lines if not line.startswith("#")]
    names = [name.strip() for name in rows[0][1]] if rows else []
    for number, row in rows:
        if len(row) != len(names):
            raise CostError(f"{path}, line {number} has {len(row)} cells, and the first line names {len(names)}")
    return (remark,) if remark else (), [
        (f"line {number}", dict(zip(names, (cell.strip() for cell in row), strict=True))) for number, row in rows[1:]
    ]


def _json_rows(text: str, path: str | Path) -> Sequence[tuple[str, Mapping[str, object]]]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise CostError(
            f"{path} is not JSON ({error}); expected a list of objects with {', '.join(_NEEDED)}"
        ) from error
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise CostError(f"{path} is not a list of objects; expected [{{{', '.join(_NEEDED)}}}, ...]")
    return [(f"entry {number}", value) for number, value in enumerate(values, 1)]


def _check_names(row: Mapping[str, object], where: str) -> None:
    """Refuse other names: what one means, and in which unit, is not guessed, and none is dropped."""
    if not set(_NEEDED) <= set(row) <= {*_NEEDED, "batch"}:
        raise CostError(
            f"{where} has {', '.join(row) or 'no names'}; expected {', '.join(_NEEDED)}, and batch where it is not 1: "
            "name them so, divide milliseconds by 1,000, and leave out what is none of these"
        )


def _timing(row: Mapping[str, object], where: str) -> PassTiming:
    missing = [name for name in _NEEDED if row.get(name) in (None, "")]
    if missing:
        raise CostError(
            f"{where} has no {', '.join(missing)}; expected {', '.join(_NEEDED)}, and batch where it is not 1"
        )
    nodes, context = _whole(row, "nodes", 0, where), _whole(row, "context", 1, where)
    batch = _whole(row, "batch", 1, where)
    try:
        seconds = finite_number(str(row["seconds"]))
    except ValueError:
        seconds = 0.0
    if not LEAST_S <= seconds <= MOST_S:
        raise CostError(
            f"{where}: seconds must be a number from {LEAST_S:g} to {MOST_S:g}; got {shown(str(row['seconds']))}"
        )
    return PassTiming(nodes, context, batch, seconds)


def _whole(row: Mapping[str, object], name: str, least: int, where: str) -> int:
    """A whole number, typed as one; 1 where nothing is typed."""
    value = row.get(name)
    text = "1" if value in (None, "") else str(value)
    try:
        return whole_number(text, least, MOST_DRAFTED if name == "nodes" else MOST_COUNT)
    except ValueError as error:
        raise CostError(f"{where}: {name}: {error}") from error


# An engine's table as timings of one batch, what the table leaves unsaid, and shapes in it that cannot occur.


_WITHIN = ("draft", "select", "commit")


def engine_timings(table: EngineTable, name: str, batch: int, context: int) -> PassTimings:
    """Timings of each text's drafted tokens, exact at every number of them up to the last that the table has.

    An engine's curve bends or jumps at its probes only, so rows on both sides of each probe are enough.

    Args:
        table: of an engine.
        name: of its file.
        batch: texts at a time.
        context: tokens before the root for which the seconds are to stand.
    """
    if isinstance(table, BenchCell):
        if batch != table.concurrency:
            raise CostError(
                f"{name} is a run of {table.concurrency} requests at a time; it says nothing of {batch}: leave out "
                "--batch, or run vllm bench serve with that --max-concurrency"
            )
        numbers = [table.drafted]
    else:
        most = table.token_probes[-1] // batch - 1
        if most < 0:
            raise CostError(
                f"{name} ends at {table.token_probes[-1]:,} tokens, and {batch:,} texts have at least one each; take a "
                "smaller --batch, or profile larger steps"
            )
        around = {probe // batch + shift for probe in table.token_probes for shift in range(-2, 2)}
        numbers = sorted({0, most} | {number for number in around if 0 <= number <= most})
    rows = [PassTiming(number, context, batch, table.pass_s(batch, batch * (number + 1))) for number in numbers]
    return PassTimings(name, _unsaid(table, batch, context), tuple(rows), _WITHIN if table.whole_steps else ())


def _unsaid(table: EngineTable, batch: int, context: int) -> tuple[str, ...]:
    """What a file of this form cannot say, for the notes of the cost file."""
    anywhere = f"taken as the same at every context up to {context:,}"
    if isinstance(table, BenchCell):
        return (
            (
                f"one cell of vllm bench serve: {table.concurrency} requests at a time, {table.drafted} drafted "
                f"tokens, contexts of about {table.context:,} tokens, acceptance length {table.acceptance_length:.4f}; "
                f"other sizes of a round were not timed, and it is {anywhere}"
            ),
            (
                "a round is the mean time of an output token times the acceptance length; HTTP, scheduling and waiting "
                "for prefills of other requests are in it"
            ),
        )
    if isinstance(table, StepCurves):
        return (f"vLLM's profiled curves at a batch of {batch}; their context is not in the file, so it is {anywhere}",)
    said = f"SGLang's table of steps at a batch of {batch}; its contexts are not in the file, so it is {anywhere}"
    if isinstance(table, SampledSteps):
        return (said, "each probe is of as few requests as fill it with whole blocks; more requests would take longer")
    return (said,)


def shape_checks(table: EngineTable, batch: int, block_size: int) -> tuple[str, ...]:
    """Sentences about shapes of the table that cannot occur, or that engines run as others.

    Args:
        table: of an engine.
        batch: texts at a time.
        block_size: of the drafter, the root counted; a chain has at most so many tokens.
    """
    if isinstance(table, BenchCell):
        return _bench_checks(table, block_size)
    found = []
    probes, widest = table.token_probes, batch * block_size
    below = [probe for probe in probes if probe < batch]
    if below:
        found.append(
            f"Probes of {_listed(below)} tokens cannot occur: {batch} requests have at least one token each, so at "
            "this batch they are not used."
        )
    if batch < probes[0]:
        found.append(f"Steps of {batch} to {probes[0] - 1} tokens were not timed; they cost what {probes[0]} cost.")
    above = [probe for probe in probes if probe > widest]
    if above:
        found.append(
            f"Probes of {_listed(above)} tokens are above {batch} requests times a block of {block_size}: chains never "
            "reach them, only trees do."
        )
    if probes[-1] < widest:
        found.append(
            f"The table ends at {probes[-1]:,} tokens, and {batch} whole blocks of {block_size} have {widest:,}; "
            "longer rounds have no price."
        )
    return (*found, *_form_checks(table, batch))


def _form_checks(table: EngineTable, batch: int) -> list[str]:
    """What only one form can have."""
    found = []
    if isinstance(table, SampledSteps) and any(low > high for (_, low), (_, high) in pairwise(table.steps)):
        found.append("Some steps of more tokens are faster than of fewer: noise of the profile, kept as it is.")
    if isinstance(table, SampledSteps) and table.max_batch_tokens > table.steps[-1][0]:
        found.append(
            f"max_batch_tokens is {table.max_batch_tokens:,}, and nothing above {table.steps[-1][0]:,} was timed; the "
            "engine takes the last probe for all of these."
        )
    requests = table.by_requests if isinstance(table, AdditiveSteps) else ()
    requests = table.draft if isinstance(table, StepCurves) else requests
    if requests and not requests[0][0] <= batch <= requests[-1][0]:
        found.append(
            f"{batch} requests are outside those that were timed, {requests[0][0]} to {requests[-1][0]}; the engine "
            "guesses there."
        )
    if isinstance(table, StepCurves):
        graphs = [size for size in table.token_probes if not table.graph_limit or size <= table.graph_limit]
        padded = [size for size in graphs if size % batch and size > batch]
        if padded:
            found.append(
                f"Graph sizes {_listed(padded)} are no multiple of {batch} requests: equal trees never fill them and "
                "are padded."
            )
    return found


def _bench_checks(table: BenchCell, block_size: int) -> tuple[str, ...]:
    if table.drafted + 1 == block_size:
        return ()
    return (f"The run drafted blocks of {table.drafted + 1}, the trace's drafter {block_size}: its tokens are others.",)


def _listed(sizes: list[int]) -> str:
    shown = ", ".join(map(str, sizes[:6]))
    return shown if len(sizes) <= 6 else f"{shown}, ... {sizes[-1]}"


# Example cost files of GPUs: what others measured with their models, which any trace may borrow.
#
# Each is made of published timings that come with simlab, and lies beside them as a cost file, so that ``--cost NAME``
# reads it. ``docs/make_cost_examples.py`` writes the files; a test makes them again.


@dataclass(frozen=True, slots=True)
class CostExample:
    """What an example cost file is made of.

    Attributes:
        name: under which ``--cost`` finds it.
        timings: the name of the published timings.
        target: the model whose passes were timed.
        drafter: the drafter whose pass was timed, or that none was.
        machine: the device, the engine and how it starts its operations.
        constants: seconds of stages that are no pass of the target, as published; others cost nothing.
    """

    name: str
    timings: str
    target: str
    drafter: str
    machine: str
    constants: Mapping[str, float]


COST_EXAMPLES = (
    CostExample(
        "h100-vllm-graphs",
        "adixg-h100-qwen3-1.7b",
        "Qwen/Qwen3-1.7B",
        "none timed",
        "NVIDIA H100 80GB, vLLM with CUDA graphs",
        {},
    ),
    CostExample(
        "a800-eager",
        "caddtree-a800-qwen3-4b",
        "Qwen/Qwen3-4B",
        "z-lab/Qwen3-4B-DFlash-b16",
        "NVIDIA A800, Hugging Face eager",
        {"draft": 0.0065},
    ),
    CostExample(
        "rtx5080-domino",
        "domino-rtx5080-qwen3-4b",
        "Qwen/Qwen3-4B",
        "Qwen3-4B-Domino-b16",
        "NVIDIA RTX 5080, Domino-Tree's runner",
        {"draft": 0.003253, "select": 0.001770, "commit": 0.000719, PLAIN: 0.013179},
    ),
)
"""In the order in which pages list them."""


def made_example(example: CostExample) -> CostFile:
    """The cost file of an example, made of its timings."""
    target, drafter = (ModelInfo(name, "", UNKNOWN) for name in (example.target, example.drafter))
    about = ImportedFor(target, drafter, 1, 0.0, 0, 1.0, example.machine, "bfloat16")
    return imported_cost_file(read_timings(example.timings), ROOT_INCLUDED, about, example.constants)


def write_examples(folder: Path = EXAMPLES) -> None:
    """Write all examples as cost files, each under its name."""
    for example in COST_EXAMPLES:
        write_cost_file(folder / f"{example.name}.json", made_example(example))
