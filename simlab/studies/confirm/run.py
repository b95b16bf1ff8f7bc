"""A confirmation from trace to summary: predicted, measured, audited, judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast

from simlab.errors import TraceError, needing_models
from simlab.studies.confirm.batch import BatchRan, batch_ran, predicted_groups
from simlab.studies.confirm.chosen import Chosen
from simlab.studies.confirm.prices import prices_for
from simlab.studies.confirm.result import Confirmation, Ran
from simlab.studies.confirm.rows import differences_of, judged_by_policy, measured_rows
from simlab.studies.inputs.asked import Asked, first_prompts
from simlab.studies.inputs.prices import Prices
from simlab.studies.replay.batch import policies_at
from simlab.studies.replay.run import Manner, replay_trace
from simlab.studies.replay.text import heading

if TYPE_CHECKING:
    from simlab.analysis.confirm.table import ConfirmedPolicy, Judged
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.real_runner.confirm.entries import FinishedSequence
    from simlab.real_runner.confirm.options import ConfirmOptions
    from simlab.real_runner.confirm.setup import ConfirmSetup
    from simlab.real_runner.confirm.stop import StopRule
    from simlab.traces.reader import Trace
    from simlab.traces.results.rows import Results

RESULTS, SUMMARY = "results.parquet", "confirm.json"
"""The files beside the log."""

_SMALLER = "give --dtype bfloat16, or policies of smaller budgets"


def confirm(
    options: "ConfirmOptions",
    trace: "Trace",
    policies: "Sequence[NamedPolicy]",
    cost: Path | None = None,
    in_sample: tuple[str, ...] = (),
    by: str | None = None,
    chosen: Chosen | None = None,
) -> Confirmation:
    """Replay policies on a trace, run them on its prompts, and hold the two against each other.

    Progress goes to stderr; nothing is printed. The log, the result rows of both kinds and the summary
    are in ``options.out`` when this returns.

    Args:
        options: which models to run, and how.
        trace: whose prompts are run.
        policies: plain decoding among them; see `simlab.studies.inputs.asked.with_references`.
        cost: the prices of the prediction; None: those that come with simlab, if they are of just this. With passes
            of one fixed shape nothing is predicted; see `simlab.studies.confirm.prices`.
        in_sample: labels to be marked; see `simlab.studies.inputs.shelf`.
        by: a table for each dataset, context or turn as well.
        chosen: what was chosen beforehand; its best policy is held against the others.

    Raises:
        SimlabError: models, trace, policies, prices and log do not fit each other; nothing was run.
    """
    from simlab.analysis.confirm.width import widest_half_width
    from simlab.traces.results.rows import joined_results, results_frame

    with needing_models("confirm"):
        from simlab.real_runner.confirm.audit import audit, bound_of, verdicts
        from simlab.real_runner.confirm.batch import measure_groups
        from simlab.real_runner.confirm.confirm import finished, measure
        from simlab.real_runner.confirm.log import ConfirmLog, check_out
        from simlab.real_runner.confirm.setup import check_trace, load_setup
        from simlab.real_runner.confirm.stop import StopRule
        from simlab.real_runner.models import within_memory

    policies = policies_at(policies, options.batch)
    check_out(options.out, options.resume)
    check_trace(trace, policies)
    wanted = set(first_prompts(trace, options.limit))
    records = [record for record in trace.sequences() if record.index in wanted]
    if not any(len(record.text) > 1 for record in records):
        raise TraceError(f"{trace.place} holds no text of more than one token, so there is nothing to confirm")
    with within_memory(_SMALLER):
        setup = load_setup(options, trace, policies, records)
        prices = prices_for(cost, setup)
        asked = Asked(prices, tuple(policies))
        if options.batch == 1:
            predicted = replay_trace(trace, setup.draft, [asked], options.limit, Manner(best_budgets=False))
        else:
            predicted = predicted_groups(trace, setup.draft, asked, setup.groups, options.batch)
        log = ConfirmLog(options.out, setup.key(), options.resume)
        rule = StopRule(widest_half_width, options.until_interval, options.time_limit_s)
        (measure if options.batch == 1 else measure_groups)(setup, log, rule)
        audit(setup, log)
    sequences = finished(log)
    ran = replace(ran_of(setup, sequences, rule, batch_ran(setup, log)), bound=bound_of(log))
    predicted = predicted.filter(predicted["sequence"].is_in([one.index for one in sequences]))
    results = joined_results([predicted, results_frame(measured_rows(setup, sequences))])
    judged = judged_by_policy(setup, sequences, verdicts(setup, log))
    first = f"{heading(trace, setup.draft, predicted, prices)}\n{_run_lines(setup, ran, prices, chosen)}"
    marks = Marks(in_sample, by, chosen)
    done = _judged(setup, prices, first, ran, results, judged, marks)
    if setup.is_reference:
        done = replace(done, differences=tuple(differences_of(setup, sequences)))
    _write(options.out, results, done)
    return done


@dataclass(frozen=True, slots=True)
class Marks:
    """What a summary says beside its numbers; see `Confirmation`."""

    in_sample: tuple[str, ...]
    by: str | None
    chosen: Chosen | None


def _judged(
    setup: "ConfirmSetup",
    prices: Prices,
    first_lines: str,
    ran: Ran,
    results: "Results",
    judged: "Mapping[str, Judged]",
    marks: Marks,
) -> Confirmation:
    """Everything that result rows and verdicts say."""
    from simlab.analysis.compare.rank_agreement import rank_agreement
    from simlab.analysis.confirm.errors import prediction_errors
    from simlab.analysis.confirm.table import contest, measured_runs

    found = _policies(setup, results, judged)
    predicted = {one.policy: one.predicted.speed.tokens_per_s for one in found}
    chosen_id = None if marks.chosen is None else marks.chosen.id_at(setup.options.batch)
    units = _by_unit(setup, results)
    return Confirmation(
        simlab_version=metadata.version("simlab"),
        text_id=setup.trace.text_id,
        draft_ids={setup.draft: setup.trace.draft_ids[setup.draft]},
        prices=prices,
        heading=first_lines,
        ran=ran,
        policies=tuple(found),
        won=contest(found, units, chosen_id),
        errors=tuple(prediction_errors(units)),
        order=rank_agreement(measured_runs(found, units), predicted),
        differences=None,
        in_sample=marks.in_sample,
        by=marks.by,
        slices=() if marks.by is None else tuple(_policies(setup, results, judged, marks.by)),
        chosen=marks.chosen,
    )


def _policies(
    setup: "ConfirmSetup", results: "Results", judged: "Mapping[str, Judged]", by: str | None = None
) -> "list[ConfirmedPolicy]":
    """A row per policy, with intervals over what was run whole."""
    from simlab.analysis.confirm.groups import with_prompts
    from simlab.analysis.confirm.table import confirmed_policies

    found = confirmed_policies(_by_unit(setup, results, by), judged, by)
    return found if setup.options.batch == 1 else with_prompts(found, results, by)


def _by_unit(setup: "ConfirmSetup", results: "Results", by: str | None = None) -> "Results":
    """The rows under the names of what was run whole: prompts, or groups of several texts at a time."""
    from simlab.analysis.confirm.groups import by_group

    return results if setup.options.batch == 1 else by_group(results, setup.units, by)


def ran_of(
    setup: "ConfirmSetup", sequences: "Sequence[FinishedSequence]", rule: "StopRule", batch: BatchRan | None = None
) -> Ran:
    """How far a run came, and why it ended."""
    from simlab.real_runner.confirm.stop import StopMonitor

    ending, options, key = StopMonitor(setup, rule, sequences), setup.options, setup.key()
    is_all = len(sequences) == len(setup.records) * options.repeats
    prompts = {record.index: (record.prompt.dataset, record.prompt.prompt_id) for record in setup.records}
    return Ran(
        machine={
            "device": str(key["--device"]),
            "threads": int(str(key["threads"])),
            "dtype": options.dtype,
            "execution": options.execution,
            "fixed_rows": setup.models.fixed_rows,
            "target": setup.manifest.target.name,
            "drafter": setup.draft_set.model.name,
            "repeats": options.repeats,
        },
        versions={name: str(version) for name, version in cast(Mapping[str, object], key["versions"]).items()},
        prompts=len({prompts[one.index] for one in sequences}),
        prompt_runs=ending.num_whole if batch is None else len({(one.repeat, prompts[one.index]) for one in sequences}),
        ended="interval" if ending.is_tight else "all" if is_all else "time",
        half_width=ending.half_width,
        until_interval=options.until_interval,
        time_limit_s=options.time_limit_s,
        batch=batch,
    )


def _run_lines(setup: "ConfirmSetup", ran: Ran, prices: Prices, chosen: Chosen | None) -> str:
    """What was run, in the form of the heading."""
    options, machine = setup.options, ran.machine
    line = f"{options.dtype} on {machine['device']}, threads {machine['threads']}, repeats {options.repeats}"
    if machine["execution"] != "eager":
        line = f"{machine['execution']}, {line}"
    if options.batch != 1:
        line += f", {options.batch} texts at a time"
    if options.batch_invariant:
        line += f", batch-invariant passes of {machine['fixed_rows']} rows"
    if options.dtype != setup.manifest.dtype:
        line += f"; the trace is {setup.manifest.dtype}, from which a {options.dtype} text may part"
    bound = f"logits of {machine['target']} in {options.dtype} may be off by {ran.bound:.2g}"
    lines = [("run", line), ("bound", bound), ("ended", ran.text())]
    lines += [] if chosen is None else chosen.lines(prices, options.batch)
    return "\n".join(f"{name.ljust(8)} {value}" for name, value in lines)


def _write(out: Path, rows: "Results", done: Confirmation) -> None:
    import json

    from simlab.traces.format.files import write_beside
    from simlab.traces.results.rows import write_results

    write_results(out / RESULTS, rows)
    text = json.dumps(done.value(), indent=1, allow_nan=False) + "\n"
    write_beside(out / SUMMARY, lambda file: file.write(text.encode()))
