"""A confirmation from trace to summary: predicted, measured, audited, judged."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from simlab.analysis.confirm.errors import FEWEST_ROUNDS, Staleness, TimedRounds, prediction_errors, staleness
from simlab.analysis.confirm.table import (
    ConfirmedPolicy,
    TextFindings,
    by_group,
    compare_winner,
    confirmed_policies,
    measured_runs,
    rank_agreement,
    widest_half_width,
    with_prompts,
)
from simlab.cost import GRID_STAGES, STAGES, is_plain
from simlab.errors import CostError, TimeUpError, TraceError
from simlab.ids import VERSION
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import is_plain_decoding, routes_of
from simlab.real_runner.confirm.audit import Verdict, audit, bound_of, verdicts
from simlab.real_runner.confirm.confirm import finished, measure
from simlab.real_runner.confirm.log import ROUND_COLUMNS, ConfirmLog, FinishedSequence, check_out
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import ConfirmSetup, check_trace, load_setup, machine_difference
from simlab.real_runner.confirm.stop import StopMonitor, StopRule, whole
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.models import within_memory
from simlab.studies.confirm.batch import predicted_groups, served_speeds
from simlab.studies.confirm.choice import PriorChoice
from simlab.studies.confirm.confirmation import Confirmation, RunFacts
from simlab.studies.inputs.artefacts import PoliciesOnMachine, largest_budget
from simlab.studies.inputs.prices import Prices, check_models, no_prices, prices_for_trace
from simlab.studies.inputs.progress import step
from simlab.studies.inputs.trace import first_prompts
from simlab.studies.replay.batch import policies_at, policy_id_at
from simlab.studies.replay.rows import channel_ids_read, columns_of_text, columns_of_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.replay.text import heading
from simlab.traces.artefacts.confirmation import RESULTS, SUMMARY
from simlab.traces.artefacts.cost import (
    CostFile,
    packaged_cost_files,
    read_cost_file,
    read_packaged_cost,
    write_cost_file,
)
from simlab.traces.format.documents import JsonFields, with_digest
from simlab.traces.format.files import write_beside
from simlab.traces.reader import Trace
from simlab.traces.results.files import write_results
from simlab.traces.results.rows import Results, joined_results, results_frame

# A latency profile against the rounds of a run, and the same profile corrected by them.


_MICROSECOND = 1e-6


def staleness_of(setup: ConfirmSetup, sequences: Sequence[FinishedSequence], prices: Prices) -> Staleness | None:
    """How far the latency profile is from the rounds of a run; None where nothing is priced or compared.

    Texts that are served together wait for each other, so their rounds are not compared.

    Args:
        setup: what was run.
        sequences: what was measured.
        prices: of the prediction.
    """
    if prices.cost is None or setup.options.batch != 1:
        return None
    # Rounds of a router take routes of different stages, and the log does not say which.
    every = [policy for policy in setup.policies if policy.policy.needs.draft and not routes_of(policy.policy)]
    drafting = [(policy.policy_id, prices.cost_of(policy.policy)) for policy in every]
    plain = next(policy.policy_id for policy in setup.policies if is_plain_decoding(policy.policy))
    return staleness(
        _timed(setup, sequences, plain),
        [(_timed(setup, sequences, policy_id), cost) for policy_id, cost in drafting if cost is not None],
        prices.cost,
    )


def repriced(file: CostFile, stale: Staleness) -> CostFile:
    """A cost file with its samples corrected by the rounds of a run.

    Plain decoding's are multiplied by one factor; those of a stage by a factor for each number of drafted tokens, the
    logarithm straight between the numbers that ran and constant beyond them. Those of all channels have one factor. All
    contexts are corrected alike.

    Args:
        file: what was predicted with.
        stale: how far it was from the run.
    """
    ran = np.array([size["num_drafted"] for size in stale.sizes], np.float64)
    factors = {}
    for stage in GRID_STAGES:
        logs = np.log([size["factors"][stage] for size in stale.sizes])
        factors[stage] = np.exp(np.interp(np.array(file.node_counts, np.float64), ran, logs))
    indices = {num_drafted: index for index, num_drafted in enumerate(file.node_counts)}

    def factor(stage: str, num_drafted: int) -> float:
        if stage in factors:
            return float(factors[stage][indices[num_drafted]])
        return 1 + stale.plain if is_plain(stage) else stale.channel

    samples = {
        (stage, n, context): tuple((np.array(seconds) * factor(stage, n)).tolist())
        for (stage, n, context), seconds in file.samples.items()
    }
    num_rounds = sum(size["rounds"] for size in stale.sizes)
    sizes = ", ".join(str(size["num_drafted"]) for size in stale.sizes)
    note = (
        f"corrected by {num_rounds:,} rounds that `simlab confirm` ran, of {sizes} drafted tokens; before that it was "
        f"the cost file {file.cost_id}"
    )
    return replace(file, samples=samples, notes=(*file.notes, note))


def _timed(setup: ConfirmSetup, sequences: Sequence[FinishedSequence], policy_id: str) -> TimedRounds:
    """The rounds of a policy, a number for each text and repeat."""
    lengths = {record.index: len(record.prompt.token_ids) for record in setup.records}
    parts = [
        (np.full(len(run.rounds), number), np.full(len(run.rounds), lengths[sequence.index]), run.rounds)
        for number, sequence in enumerate(sequences)
        for run in sequence.runs
        if run.policy_id == policy_id
    ]
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(ROUND_COLUMNS)), np.int64)
    texts, prompts, rounds = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
    columns = dict(zip(ROUND_COLUMNS, rounds.T, strict=True))
    seconds = np.stack([_MICROSECOND * columns[f"{stage}_us"] for stage in STAGES], axis=1)
    return TimedRounds(texts, prompts + columns["position"], columns["drafted"], seconds)


# What a confirmation measured, as result rows and as facts about each policy.


def measured_rows(setup: ConfirmSetup, sequences: Sequence[FinishedSequence]) -> list[dict[str, object]]:
    """Make a result row for each text that was decoded; a repeat is a further row of the same sequence."""
    records = {record.index: record for record in setup.records}
    policies = {policy.policy_id: policy for policy in setup.policies}
    rows: list[dict[str, object]] = []
    for sequence in sequences:
        own = columns_of_text(records[sequence.index].recorded())
        shared = {**columns_of_trace(setup.trace, setup.draft), **own, "cost_id": None}
        for run in sequence.runs:
            policy = policies[run.policy_id]
            rows.append(
                {
                    **shared,
                    "kind": "measured",
                    "stop_reason": run.stop_reason,
                    "policy": policy.label,
                    "policy_id": policy.policy_id,
                    "channel_ids": channel_ids_read([policy.policy], setup.trace),
                    "name": policy.name,
                    "settings": json.dumps(dict(policy.settings), sort_keys=True),
                    **asdict(run.totals),
                    **asdict(run.seconds),
                }
            )
    return rows


def judged_by_policy(
    setup: ConfirmSetup, sequences: Sequence[FinishedSequence], verdicts: Mapping[str, Verdict]
) -> dict[str, TextFindings]:
    """Judge each policy by its texts: lossless, as the replay, as plain decoding; by the policy's id."""
    prompts = {record.index: record.prompt for record in setup.records}
    plain = [run.text for seq in sequences for run in seq.runs if run.policy_id == setup.plain_id]
    judged = {}
    for policy in setup.policies:
        runs = [(seq.index, run) for seq in sequences for run in seq.runs if run.policy_id == policy.policy_id]
        unequal = [
            f"prompt {prompts[index].prompt_id!r}, turn {prompts[index].turn}, {run.unequal}"
            for index, run in runs
            if run.unequal
        ]
        verdict = verdicts[policy.policy_id]
        judged[policy.policy_id] = TextFindings(
            lossless=str(verdict),
            num_ties=verdict.num_ties,
            worst_gap=verdict.worst_gap,
            bound=verdict.bound,
            fault=verdict.fault,
            num_equal=len(runs) - len(unequal),
            num_texts=len(runs),
            unequal=unequal[0] if unequal else "",
            num_same_texts=sum(run.text == text for (_, run), text in zip(runs, plain, strict=True)),
        )
    return judged


def differences_of(setup: ConfirmSetup, sequences: Sequence[FinishedSequence]) -> Iterator[dict[str, object]]:
    """List where the texts, rounds and rows of the run are not those of the trace, as flat values."""
    prompts = {record.index: record.prompt for record in setup.records}
    labels = {policy.policy_id: policy.label for policy in setup.policies}
    for sequence in sequences:
        prompt = prompts[sequence.index]
        for run in sequence.runs:
            where = {"policy": labels[run.policy_id], "sequence": sequence.index, "repeat": sequence.repeat}
            where |= {"prompt_id": prompt.prompt_id, "turn": prompt.turn}
            yield from ({**where, **difference} for difference in run.differences)


# At which prices a confirmation predicts: those of exactly what is run, or none.


_NO_PRICES = (
    "Nothing is predicted: simlab ships no latency profile for exactly these models, this machine and these settings; "
    "measure one with `simlab profile{options}`, and give the file with --cost."
)

_OTHER_PASSES = (
    "With --batch-invariant every pass has the rows of the largest budget, and no cost file was measured so: nothing "
    "is predicted."
)


def prices_for(path: Path | None, setup: ConfirmSetup) -> Prices:
    """Find the prices at which a confirmation predicts: of a file, or shipped ones; measured with just what is run.

    Passes of one fixed shape have none; a file of the models then serves the policies that read prices alone.

    Args:
        path: the file that was asked for; None: none was.
        setup: what is run.
    """
    if setup.options.batch_invariant:
        if path is not None:
            check_models(path, read_cost_file(path), setup.trace, setup.draft)
        return no_prices(_OTHER_PASSES)
    if path is None:
        return _shipped_prices(setup)
    _check_same(path, setup.price_difference(read_cost_file(path)), setup.options)
    return prices_for_trace(path, setup.trace, setup.draft, setup.options.limit)


def _check_same(path: Path, difference: str | None, options: ConfirmOptions) -> None:
    """Refuse a file that was measured with something else, which `difference` says; None: nothing else."""
    if difference is not None:
        raise CostError(
            f"{path} was measured with {difference}; a prediction that is to be confirmed needs a latency profile of "
            f"exactly what is run: measure one with `simlab profile{_profile_options(options)} --out FILE`, or leave "
            "--cost out"
        )


def _shipped_prices(setup: ConfirmSetup) -> Prices:
    """The prices that come with simlab and were measured with just what is run; or none, and why.

    Those with notes were measured by an earlier simlab, or otherwise, and predict where they are asked for alone.
    """
    shipped = {path: read_packaged_cost(path) for path in packaged_cost_files()}
    fitting = [path for path, file in shipped.items() if not file.notes and setup.price_difference(file) is None]
    if not fitting:
        return no_prices(_NO_PRICES.format(options=_profile_options(setup.options)))
    try:
        prices = prices_for_trace(fitting[0], setup.trace, setup.draft, setup.options.limit)
    except CostError as error:
        return no_prices(f"Nothing is predicted: {error}")
    most = largest_budget(setup.policies, setup.draft_set.depth)
    if prices.cost is not None and most > prices.cost.most_drafted:
        return no_prices(
            f"Nothing is predicted: a policy may draft {most:,} tokens, and the packaged latency profile reaches "
            f"{prices.cost.most_drafted:,}; measure more with `simlab profile --node-counts ...`, and give the file "
            "with --cost."
        )
    return prices


def _profile_options(options: ConfirmOptions) -> str:
    """What `simlab profile` of just this run is to be given, where that is not what it has anyway."""
    batch = "" if options.batch == 1 else f" --batch {options.batch}"
    return batch if options.execution == EAGER else f"{batch} --execution {options.execution}"


_TOO_FEW = (
    "{reprice} was not written: no number of drafted tokens had "
    f"{FEWEST_ROUNDS} rounds; run more prompts. Everything else is written."
)
_TOO_SHORT = (
    "--time-limit {minutes:g} was over before every policy had run one whole prompt, loading and warming up counted; "
    "give more minutes, and --resume, since {out} holds what was run"
)
_SMALLER = "give --dtype bfloat16, or policies of smaller budgets"


def run_confirmation(
    options: ConfirmOptions,
    trace: Trace,
    policies: Sequence[NamedPolicy],
    cost: Path | None = None,
    in_sample: tuple[str, ...] = (),
    by: str | None = None,
    chosen: PriorChoice | None = None,
    reprice: Path | None = None,
) -> Confirmation:
    """Replay policies on a trace, run them on its prompts, and compare the two.

    Progress goes to stderr; nothing is printed. The log, the result rows of both kinds and the summary
    are in ``options.out`` when this returns.

    Args:
        options: which models to run, and how.
        trace: whose prompts are run.
        policies: plain decoding among them; see `simlab.studies.inputs.artefacts.with_references`.
        cost: the prices of the prediction; None: those that come with simlab, if they are of just this. With passes
            of one fixed shape nothing is predicted; see `simlab.studies.confirm.run`.
        in_sample: labels of policies whose tables or counts are of the very texts of the trace.
        by: what tables are cut by; None: one table of all.
        chosen: what was chosen beforehand; its best policy is held against the others. None: nothing was.
        reprice: where the cost file of the prediction is written, corrected by the rounds that ran; None: nowhere.
    """
    begun = time.monotonic()
    policies = policies_at(policies, options.batch)
    check_out(options.out, options.resume)
    check_trace(trace, policies)
    wanted = set(first_prompts(trace, options.limit))
    records = [record for record in trace.sequences() if record.index in wanted]
    if not any(len(record.text) > 1 for record in records):
        raise TraceError(f"{trace.location} holds no text of more than one token, so there is nothing to confirm")
    if cost is not None and not options.batch_invariant:
        _check_same(cost, machine_difference(options, read_cost_file(cost)), options)
    with within_memory(_SMALLER):
        with step("confirm", "the models are loaded"):
            setup = load_setup(options, trace, policies, records)
        prices = prices_for(cost, setup)
        measured_prices = None if reprice is None else _file_to_correct(cost, prices, setup)
        predicted = _predicted(setup, prices)
        log = ConfirmLog(options.out, setup.key(), options.resume)
        rule = StopRule(widest_half_width, options.until_interval, options.time_limit_s, begun)
        measure(setup, log, rule)
        if not whole(setup.units, finished(log)):
            raise TimeUpError(_TOO_SHORT.format(minutes=(options.time_limit_s or 0.0) / 60, out=options.out))
        audit(setup, log)
    sequences = whole(setup.units, finished(log))
    ran = run_facts(setup, sequences, rule, log)
    predicted = predicted.filter(predicted["sequence"].is_in([sequence.index for sequence in sequences]))
    results = joined_results([predicted, results_frame(measured_rows(setup, sequences))])
    judged = judged_by_policy(setup, sequences, verdicts(setup, log))
    confirmed = _confirmed_policies(setup, results, judged)
    chosen_id = None if chosen is None else chosen.policy_id
    if chosen_id is not None and options.batch != 1:
        chosen_id = policy_id_at(chosen_id, options.batch)
    units = _by_unit(setup, results)
    confirmation = Confirmation(
        simlab_version=VERSION,
        text_id=trace.text_id,
        draft_ids={setup.draft: trace.draft_ids[setup.draft]},
        prices=prices,
        heading=f"{heading(trace, setup.draft, predicted, prices)}\n{_run_lines(setup, ran, prices, chosen)}",
        ran=ran,
        policies=tuple(confirmed),
        won=compare_winner(confirmed, units, chosen_id),
        errors=tuple(prediction_errors(units)),
        order=rank_agreement(
            measured_runs(confirmed, units),
            {policy.policy: policy.predicted.speed.tokens_per_s for policy in confirmed},
        ),
        differences=tuple(differences_of(setup, sequences)) if setup.is_reference else None,
        in_sample=in_sample,
        by=by,
        chosen=chosen,
        unpriced=PoliciesOnMachine(prices, setup.policies).unpriced_note(),
        slices=() if by is None else tuple(_confirmed_policies(setup, results, judged, by)),
        stale=staleness_of(setup, sequences, prices),
    )
    write_results(options.out / RESULTS, results, trace.sequence_counts)
    text = json.dumps(with_digest(confirmation.to_json()), indent=1, allow_nan=False) + "\n"
    write_beside(options.out / SUMMARY, lambda file: file.write(text.encode()))
    if reprice is not None and measured_prices is not None:
        if confirmation.stale is None:
            raise CostError(_TOO_FEW.format(reprice=reprice))
        write_cost_file(reprice, repriced(measured_prices, confirmation.stale))
    return confirmation


def _file_to_correct(cost: Path | None, prices: Prices, setup: ConfirmSetup) -> CostFile:
    """The cost file of the prediction."""
    if prices.cost is None or setup.options.batch != 1:
        why = prices.no_latency_reason or "rounds of several texts at a time are not compared with it."
        raise CostError(f"--reprice corrects the latency profile of the prediction, and there is none. {why}")
    if cost is not None:
        return read_cost_file(cost)
    return next(file for file in map(read_packaged_cost, packaged_cost_files()) if file.cost_id == prices.cost_id)


def _predicted(setup: ConfirmSetup, prices: Prices) -> Results:
    """Result rows of the replay of just what is run."""
    priced, batch, limit = PoliciesOnMachine(prices, setup.policies), setup.options.batch, setup.options.limit
    if batch == 1:
        return replay_trace(setup.trace, setup.draft, [priced], limit, ReplayRun(best_budgets=False))
    return predicted_groups(setup.trace, setup.draft, priced, setup.groups, batch)


def _confirmed_policies(
    setup: ConfirmSetup, results: Results, judged: Mapping[str, TextFindings], by: str | None = None
) -> list[ConfirmedPolicy]:
    """A row per policy, with intervals over what was run whole."""
    policies = confirmed_policies(_by_unit(setup, results, by), judged, by)
    return policies if setup.options.batch == 1 else with_prompts(policies, results, by)


def _by_unit(setup: ConfirmSetup, results: Results, by: str | None = None) -> Results:
    """The rows under the names of what was run whole: prompts, or groups of several texts at a time."""
    return results if setup.options.batch == 1 else by_group(results, setup.units, by)


def run_facts(setup: ConfirmSetup, sequences: Sequence[FinishedSequence], rule: StopRule, log: ConfirmLog) -> RunFacts:
    """Tell what was run, how far it came, and why it ended."""
    ending, options = StopMonitor(setup, rule, sequences), setup.options
    key = JsonFields(setup.key(), "the key of the run")
    is_all = len(sequences) == len(setup.records) * options.repeats
    prompts = {record.index: (record.prompt.dataset, record.prompt.prompt_id) for record in setup.records}
    is_alone = options.batch == 1
    groups, group_runs, speeds = (0, 0, {}) if is_alone else served_speeds(setup, log)
    return RunFacts(
        machine={
            "device": key.text("--device"),
            "threads": key.integer("threads"),
            "dtype": options.dtype,
            "execution": options.execution,
            "fixed_rows": setup.models.fixed_rows,
            "target": setup.manifest.target.name,
            "drafter": setup.draft_set.model.name,
            "repeats": options.repeats,
        },
        versions=key.texts("versions"),
        prompts=len({prompts[sequence.index] for sequence in sequences}),
        prompt_runs=ending.num_whole
        if is_alone
        else len({(sequence.repeat, prompts[sequence.index]) for sequence in sequences}),
        ended="interval" if ending.is_tight else "all" if is_all else "time",
        half_width=ending.half_width,
        until_interval=options.until_interval,
        time_limit_s=options.time_limit_s,
        batch=options.batch,
        groups=groups,
        group_runs=group_runs,
        speeds=speeds,
        bound=bound_of(log),
    )


def _run_lines(setup: ConfirmSetup, ran: RunFacts, prices: Prices, chosen: PriorChoice | None) -> str:
    """What was run, as lines that follow the heading of the replay."""
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
