"""A confirmation: the real models run the policies that replay compared, and the two are compared."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from simlab.errors import CostError, UsageError, as_usage_error
from simlab.ids import VERSION
from simlab.options import given_for, path_or_none, study
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policies.parsing.user_file import check_names_no_code
from simlab.policy import GivenPolicies, given_policies, routes_of
from simlab.real_runner.confirm.log import LOG, check_out
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.model_options import EXACT_BUDGET, MIN_WIDTH, value_or
from simlab.real_runner.profile.machine import library_versions
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.targets.hub_files import repository_of
from simlab.studies.confirm.choice import prior_choice
from simlab.studies.confirm.confirmation import Confirmation
from simlab.studies.confirm.request import ConfirmRequest
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import TraceArtefacts, with_references
from simlab.studies.inputs.prices import cost_table_of, no_prices
from simlab.studies.inputs.trace import first_prompts, opened, sample_trace
from simlab.studies.record import record
from simlab.traces.artefacts.confirmation import RESULTS, SUMMARY
from simlab.traces.artefacts.cost import CostFile, find_packaged, read_cost_file
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.reader import Trace
from simlab.tracking.tracker import check_trackers, tracking

# What policies read where models are run: prices, tables and counts, before a model is loaded.


_NAME_PRICES = "Measure one with `simlab profile{options}`, and give the file with --cost."


def artefacts_of_models(
    cost: Path | None, trace: Trace | None, draft: str | None, dtype: str, batch: int = 1
) -> TraceArtefacts:
    """Find the artefacts for running models: prices of a file, else those that come with simlab for the trace's models.

    Args:
        cost: the cost file that was asked for.
        trace: None where it is still to be recorded.
        draft: the drafter as it was asked for; None: the only one of the trace. That one may have any name: files move,
            and what they are is seen when they are loaded.
        dtype: in which the models run.
        batch: texts at a time; those that come with simlab are prices of one.
    """
    name = None if trace is None else _draft_set_of(trace, draft)
    options = "" if batch == 1 else f" --batch {batch}"
    file: CostFile | None = None
    if cost is not None:
        file = read_cost_file(cost)
        if file.batch != batch:
            raise CostError(
                f"{cost} was measured with batch {file.batch}, and this run has {batch}; measure just what is run "
                f"with `simlab profile{options} --out FILE`, or leave --cost out"
            )
    elif trace is not None and name is not None and batch == 1:
        draft_set = trace.manifest.draft_sets[name]
        file = find_packaged(trace.manifest.target, draft_set.model, draft_set.block_size, dtype)
    prices = no_prices(_NAME_PRICES.format(options=options))
    if file is not None:
        prices = replace(prices, cost=cost_table_of(file, cost))
    return TraceArtefacts(prices, trace, name)


def _draft_set_of(trace: Trace, draft: str | None) -> str | None:
    """The draft set of a drafter: the only one, else that of its name; None where that is not known."""
    sets = trace.manifest.draft_sets
    if len(sets) == 1:
        return next(iter(sets))
    repository = None if draft is None else repository_of(draft)
    named = [name for name, draft_set in sets.items() if repository in (name, draft_set.model.name)]
    return named[0] if len(named) == 1 else None


WITHOUT_CHOICE = ("ddtree:budget=16",)
"""What is run where no policy is named and nothing was chosen, besides plain decoding and the chain."""

MOST_REPEATS = 10
"""Where a stop rule decides, and nothing else was asked for: repeats make the clock's noise small, and no more."""


@study(ConfirmRequest)
def confirm(options: ConfirmRequest) -> Confirmation:
    """Run policies with the real models on the prompts of a trace, and compare with its replay.

    Autoregressive decoding and the chain always run. The log, the result rows of both kinds and the summary are in
    ``out`` when this returns; progress goes to standard error.

    Raises:
        SimlabError: models, trace, policies, latency profile, log and options do not fit each other; nothing was run.
    """
    check_trackers(options.track)
    reprice = path_or_none(options.reprice)
    if reprice is not None and reprice.exists():
        raise UsageError(f"--reprice names {reprice}, which is there already; give another name")
    optimum = None if options.choice is None else read_optimum(Path(options.choice))
    chosen_policies = () if optimum is None else optimum.run
    asked_for = given_policies(options.policies)
    check_names_no_code(
        chosen_policies, [policy for policy in asked_for if isinstance(policy, str)], str(options.choice)
    )
    typed = [*chosen_policies, *asked_for] or list(WITHOUT_CHOICE)
    cost = path_or_none(options.cost)
    has_stop_rule = options.until_interval is not None or options.time_limit is not None
    with as_usage_error():
        changed = {
            "out": Path(options.out),
            "repeats": value_or(options.repeats, MOST_REPEATS if has_stop_rule else 1),
            "time_limit_s": _time_limit_s(options.time_limit),
            # What is recorded first says in its manifest which layers were read.
            "tap_offset": options.tap_offset if options.prompts is None else None,
            "channels": dict(options.channel),
        }
        run = ConfirmOptions(**given_for(ConfirmOptions, options) | changed)
    with exclusive_lock(run.out / LOG):
        check_out(run.out, options.resume)
        predicting = [] if cost is None or run.batch_invariant else [cost]
        if options.prompts is None:
            recording = opened(options.trace, predicting)
        else:
            first, _ = _policies_on(_trace_of_models(options.target, options.draft), typed, options)
            _check_no_channels(first)
            recording = opened(_recorded(first, options), predicting)
        asked, in_sample = _policies_on(recording, typed, options)
        chosen = None
        if options.choice is not None and optimum is not None:
            wanted = set(first_prompts(recording, options.limit))
            records = [sequence for sequence in recording.sequences() if sequence.index in wanted]
            chosen = prior_choice(Path(options.choice), optimum, records, asked)
        with tracking(options.track, "confirm", lambda: _tracked_settings(run, recording, asked, cost)) as tracker:
            confirmation = run_confirmation(run, recording, asked, cost, in_sample, options.by, chosen, reprice)
            if tracker.is_asked:
                as_json = confirmation.to_json()
                tracker.results({key: as_json[key] for key in ("ran", "rows", "rank_agreement")})
                tracker.files(run.out / SUMMARY, run.out / RESULTS)
        return confirmation


def _tracked_settings(
    options: ConfirmOptions, trace: Trace, policies: Sequence[NamedPolicy], cost: Path | None
) -> dict[str, object]:
    """Everything that trackers are told of a run at its start: its settings, what it reads, by ids, and versions."""
    return asdict(options) | {
        "policies": {policy.label: policy.policy_id for policy in policies},
        "trace": trace.location,
        "text_id": trace.text_id,
        "draft_ids": dict(trace.draft_ids),
        "cost_id": "packaged" if cost is None else read_cost_file(cost).cost_id,
        "versions": {"simlab": VERSION, **library_versions()},
    }


def _policies_on(
    trace: Trace | None, typed: GivenPolicies, options: ConfirmRequest
) -> tuple[list[NamedPolicy], tuple[str, ...]]:
    """Make the policies, each once, and list the labels of those that are judged in sample.

    Args:
        trace: whose models artefacts must be of; None where they are not known yet.
        typed: the policies as they were given.
        options: what was asked for.
    """
    artefacts = artefacts_of_models(
        path_or_none(options.cost), trace, options.draft, options.dtype, value_or(options.batch, 1)
    )
    policies = with_references(typed, artefacts)
    return policies, artefacts.in_sample(policies)


def _check_no_channels(policies: Sequence[NamedPolicy]) -> None:
    """Refuse to record prompts for a policy that reads what is added to a trace afterwards."""
    for named in policies:
        for need in named.policy.needs.made:
            raise UsageError(
                f"{named.label} reads the channel {need.name}, which is added to a finished trace; record the prompts "
                "with `simlab record --prompts FILE --out DIR`, add it with `simlab record --trace DIR --add-channel "
                f"{need.name}=CHECKPOINT`, and confirm with --trace DIR"
            )


def _time_limit_s(minutes: float | None) -> float | None:
    """Turn a time limit from minutes into seconds."""
    if minutes is None:
        return None
    if not minutes >= 0:
        raise UsageError(f"--time-limit is in minutes and must not be negative; got {minutes:g}")
    return 60 * minutes


def _trace_of_models(target: str | None, draft: str | None) -> Trace | None:
    """Before prompts are recorded, a trace of the models that will record them, if it is the packaged one."""
    packaged = sample_trace()
    drafters = {draft_set.model.name for draft_set in packaged.manifest.draft_sets.values()}
    is_same = target in (None, packaged.manifest.target.name) and (draft is None or draft in drafters)
    return packaged if is_same else None


def _recorded(policies: Sequence[NamedPolicy], asked: ConfirmRequest) -> Trace:
    """Record prompts so that every policy finds what it reads."""
    every = [route for policy in policies for route in routes_of(policy.policy) or (policy.policy,)]
    needs = [policy.needs for policy in every]
    whole = [policy.budget for policy in every if policy.needs.draft and policy.needs.top_k is None]
    changed = {
        "out": Path(asked.out) / "trace",
        "min_width": max([MIN_WIDTH, *(need.top_k or 0 for need in needs)]),
        "exact_budget": max([EXACT_BUDGET, *whole]),
    }
    return record.run(RecordOptions(**given_for(RecordOptions, asked) | changed))
