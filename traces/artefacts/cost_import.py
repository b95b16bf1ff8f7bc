"""Seconds of passes that somebody else measured, as a cost file: of timings, or of an engine's table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.errors import CostError
from simlab.traces.artefacts.cost import (
    EXAMPLES,
    IMPORTED,
    NOT_STATED,
    UNKNOWN,
    WHOLE_ROUNDS,
    Cell,
    CostFile,
    check_not_alike,
    write_cost_file,
)
from simlab.traces.artefacts.engine_tables import AdditiveSteps, BenchCell, EngineTable, SampledSteps, StepCurves
from simlab.traces.artefacts.timings import (
    DRAFTED_ONLY,
    ROOT_INCLUDED,
    WHOLE_PASS,
    PassTiming,
    PassTimings,
    read_timings,
)
from simlab.traces.format.manifest_entries import ModelInfo

ANY_CONTEXT = 131_072
"""Seconds of which nobody said the context are taken as the same up to this many tokens before the root."""


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


def models_not_stated(machine: str, dtype: str, target: str | None = None) -> ImportedFor:
    """What timings are of where no trace says it: a target by its name alone, or of no stated models."""
    name = NOT_STATED if target is None else target
    return ImportedFor(ModelInfo(name, "", UNKNOWN), ModelInfo(NOT_STATED, "", UNKNOWN), 1, 0.0, 0, 1.0, machine, dtype)


def imported_cost_file(
    timings: PassTimings,
    counts: str,
    about: ImportedFor,
    constants: Mapping[str, float],
    batch: int | None = None,
    context: int = ANY_CONTEXT,
) -> CostFile:
    """A finished cost file of timings; its notes say what it was made of and what is not in it.

    Args:
        timings: of the target's pass.
        counts: one of `simlab.traces.artefacts.timings.COUNTS`.
        about: what they are said to be of.
        constants: seconds of stages that were given beside them, each one number for all cells; other stages are
            free, and a token of plain decoding takes as long as a pass of the root alone, where that was timed.
        batch: take the rows of so many texts at a time; None: all rows are of one number.
        context: tokens before the root up to which seconds stand whose context nobody said.
    """
    twice = [stage for stage in constants if stage in timings.within]
    if twice:
        raise CostError(
            f"seconds in {timings.name} are those of whole rounds, so {', '.join(twice)} is in them already; leave out "
            f"--{twice[0]}-s"
        )
    batch = _one_batch(timings, batch)
    cells, notes = _cells(timings, counts, batch, context)
    contexts, numbers = sorted({c for _, c in cells}), sorted({n for n, _ in cells})
    num_missing = len(contexts) * len(numbers) - len(cells)
    if num_missing:
        n, c = next((n, c) for c in contexts for n in numbers if (n, c) not in cells)
        raise CostError(
            f"{timings.name} has no row of {_as_counted(n, counts, batch)} nodes at context {c:,}, and {num_missing} "
            "such gaps in all; every number of nodes must be timed at every context"
        )
    is_plain = numbers[0] == 0 and not timings.within
    if numbers[0] > 0:
        notes.append(f"a pass of fewer than {numbers[0]} drafted tokens was not timed and costs what {numbers[0]} cost")
        cells |= {(0, c): cells[numbers[0], c] for c in contexts}
        numbers.insert(0, 0)
    timed = _timed_stages(timings, constants)
    samples: dict[Cell, tuple[float, ...]] = {
        ("verify", n, c): tuple(row.seconds for row in rows) for (n, c), rows in cells.items()
    }
    for stage in (stage for stage in GRID_STAGES if stage != "verify"):
        for (n, c), rows in cells.items():
            own = tuple(row.stages[stage] for row in rows) if stage in timed else (constants.get(stage, 0.0),)
            samples[stage, n, c] = own
    for c in contexts:
        samples[PLAIN, 0, c] = (
            (constants[PLAIN],) if PLAIN in constants else samples["verify", 0, c] if is_plain else (0.0,)
        )
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
        notes=(*timings.remarks, *notes, *_stage_notes(constants, timings.within, timed, is_plain)),
    )
    check_not_alike(file, timings.name)
    return file


def batches_of(timings: PassTimings) -> tuple[int, ...]:
    """The numbers of texts at a time that were timed, ascending."""
    return tuple(sorted({row.batch for row in timings.rows}))


def counts_of(timings: PassTimings, asked: str | None) -> str:
    """What the sizes of a file count, by the name of their column and what was asked for.

    A size of ``tokens`` is that of each text where a batch has fewer tokens than texts, or no whole number for each.

    Raises:
        CostError: neither says it, or they contradict each other.
    """
    known = timings.counts
    if known == DRAFTED_ONLY:
        if asked not in (None, DRAFTED_ONLY):
            raise CostError(
                f"{timings.name} has drafted tokens by the name of their column; leave out --counts {asked}"
            )
        return DRAFTED_ONLY
    if asked is not None:
        if known and asked == DRAFTED_ONLY:
            raise CostError(
                f"{timings.name} has tokens of passes by the name of their column, and a pass has the root too; name "
                "the column num_drafted, or leave out --counts"
            )
        return asked
    if not known:
        raise CostError(
            f"timings need --counts {ROOT_INCLUDED} or {DRAFTED_ONLY}: what nodes counts is not in the file"
        )
    wide = [row for row in timings.rows if row.batch > 1]
    if wide and all(row.nodes % row.batch == 0 and row.nodes for row in wide):
        raise CostError(
            f"{timings.name} has tokens at {wide[0].batch} texts at a time: those of each text, or of the whole pass? "
            f"Give --counts {ROOT_INCLUDED} (each text's) or --counts {WHOLE_PASS}"
        )
    return ROOT_INCLUDED


def _timed_stages(timings: PassTimings, constants: Mapping[str, float]) -> tuple[str, ...]:
    """Stages that columns of the timings have; a constant beside them is refused."""
    timed = tuple(timings.rows[0].stages)
    for stage in timed:
        if stage in constants:
            raise CostError(f"{timings.name} has a column of {stage}; leave out --{stage}-s")
    return timed


def _one_batch(timings: PassTimings, batch: int | None) -> int:
    batches = batches_of(timings)
    shown = ", ".join(map(str, batches))
    if batch is None and len(batches) > 1:
        raise CostError(f"{timings.name} has timings of {shown} texts at a time; choose one with --batch N")
    if batch is not None and batch not in batches:
        raise CostError(f"{timings.name} has no timings of {batch} texts at a time; it has those of {shown}")
    return batches[0] if batch is None else batch


_SAID = {
    ROOT_INCLUDED: "the root among them, one more than drafted tokens",
    DRAFTED_ONLY: "the root not among them",
    WHOLE_PASS: "all texts of the batch and their roots among them",
}


def _as_counted(drafted: int, counts: str, batch: int) -> int:
    """Drafted tokens of a text, as the file counts them."""
    return drafted if counts == DRAFTED_ONLY else (drafted + 1) * (batch if counts == WHOLE_PASS else 1)


def _cells(
    timings: PassTimings, counts: str, batch: int, context: int
) -> tuple[dict[tuple[int, int], tuple[PassTiming, ...]], list[str]]:
    """Rows by drafted tokens and context, and how nodes were counted."""
    by_cell: dict[tuple[int, int], tuple[PassTiming, ...]] = {}
    for row in timings.rows:
        per_text = row.nodes if counts != WHOLE_PASS else row.nodes / row.batch
        if per_text != int(per_text):
            raise CostError(
                f"{timings.name} has a pass of {row.nodes} tokens, which {row.batch} texts cannot share alike"
            )
        drafted = int(per_text) - (counts != DRAFTED_ONLY)
        if drafted < 0:
            raise CostError(
                f"{timings.name} has a pass of {row.nodes} nodes, and with the root counted the fewest are 1; "
                f"it may need --counts {DRAFTED_ONLY}"
            )
        if row.batch == batch:
            cell = (drafted, row.context or context)
            by_cell[cell] = (*by_cell.get(cell, ()), row)
    notes = [f"nodes were counted {counts}: {_SAID[counts]}"]
    if not timings.rows[0].context:
        notes.append(f"the context was not given, so seconds are taken as the same up to {context:,} tokens")
    return by_cell, notes


def _stage_notes(
    constants: Mapping[str, float], within: Sequence[str], timed: Sequence[str], is_plain: bool
) -> list[str]:
    notes = [
        f"{'a token of plain decoding' if stage == PLAIN else stage} takes {seconds:g} s everywhere, as given"
        for stage, seconds in constants.items()
    ]
    if within:
        notes.append(f"{', '.join(within)}: {WHOLE_ROUNDS}")
    free = [stage for stage in GRID_STAGES if stage != "verify" and stage not in {*constants, *within, *timed}]
    if free:
        notes.append(f"{', '.join(free)}: not given, so they cost nothing here and speeds are too high")
    if PLAIN not in constants and is_plain:
        notes.append("plain decoding was not given; a token takes as long as the shortest pass")
    elif PLAIN not in constants:
        notes.append("autoregressive decoding was not given, nor a pass of one token, so there is no speedup over it")
    return notes


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
    within = () if isinstance(table, StepCurves) else _WITHIN
    return PassTimings(name, _unsaid(table, batch, context), tuple(rows), within, DRAFTED_ONLY)


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
    note = f"SGLang's table of steps at a batch of {batch}; its contexts are not in the file, so it is {anywhere}"
    if isinstance(table, SampledSteps):
        return (note, "each probe is of as few requests as fill it with whole blocks; more requests would take longer")
    return (note,)


def shape_checks(table: EngineTable, batch: int, block_size: int | None) -> tuple[str, ...]:
    """Sentences about shapes of the table that cannot occur, or that engines run as others.

    Args:
        table: of an engine.
        batch: texts at a time.
        block_size: of the drafter, the root counted; a chain has at most so many tokens. None: not known.
    """
    if isinstance(table, BenchCell):
        return () if block_size is None else _bench_checks(table, block_size)
    notes = []
    probes, widest = table.token_probes, batch * (block_size or 0)
    below = [probe for probe in probes if probe < batch]
    if below:
        notes.append(
            f"Probes of {_listed(below)} tokens cannot occur: {batch} requests have at least one token each, so at "
            "this batch they are not used."
        )
    if batch < probes[0]:
        notes.append(f"Steps of {batch} to {probes[0] - 1} tokens were not timed; they cost what {probes[0]} cost.")
    above = [probe for probe in probes if probe > widest]
    if above and block_size is not None:
        notes.append(
            f"Probes of {_listed(above)} tokens are above {batch} requests times a block of {block_size}: chains never "
            "reach them, only trees do."
        )
    if block_size is not None and probes[-1] < widest:
        notes.append(
            f"The table ends at {probes[-1]:,} tokens, and {batch} whole blocks of {block_size} have {widest:,}; "
            "longer rounds have no price."
        )
    return (*notes, *_form_checks(table, batch))


def _form_checks(table: EngineTable, batch: int) -> list[str]:
    """What only one form can have."""
    notes = []
    if isinstance(table, SampledSteps) and any(low > high for (_, low), (_, high) in pairwise(table.steps)):
        notes.append("Some steps of more tokens are faster than of fewer: noise of the profile, kept as it is.")
    if isinstance(table, SampledSteps) and table.max_batch_tokens > table.steps[-1][0]:
        notes.append(
            f"max_batch_tokens is {table.max_batch_tokens:,}, and nothing above {table.steps[-1][0]:,} was timed; the "
            "engine takes the last probe for all of these."
        )
    requests = table.by_requests if isinstance(table, AdditiveSteps) else ()
    requests = table.draft if isinstance(table, StepCurves) else requests
    if requests and not requests[0][0] <= batch <= requests[-1][0]:
        notes.append(
            f"{batch} requests are outside those that were timed, {requests[0][0]} to {requests[-1][0]}; the engine "
            "guesses there."
        )
    if isinstance(table, StepCurves):
        graphs = [size for size in table.token_probes if not table.graph_limit or size <= table.graph_limit]
        padded = [size for size in graphs if size % batch and size > batch]
        if padded:
            notes.append(
                f"Graph sizes {_listed(padded)} are no multiple of {batch} requests: equal trees never fill them and "
                "are padded."
            )
    return notes


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
