"""An engine's table as timings of one batch, what the table leaves unsaid, and shapes in it that cannot occur."""

from itertools import pairwise

from simlab.errors import CostError
from simlab.traces.artefacts.cost_import import PassTiming, PassTimings
from simlab.traces.artefacts.engine_tables import AdditiveSteps, BenchCell, EngineTable, SampledSteps, StepCurves

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
