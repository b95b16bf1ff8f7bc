"""A confirmation: the real models run the policies that replay compared, and the two are held against each other."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from simlab.errors import UsageError, at_the_door
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import routes_of
from simlab.real_runner.confirm.log import LOG, check_out
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.profile.machine import library_versions
from simlab.studies.confirm.artefacts import artefacts_of_models
from simlab.studies.confirm.choice import PriorChoice, prior_choice
from simlab.studies.confirm.confirmation import Confirmation, SummaryContext
from simlab.studies.confirm.run import RESULTS, SUMMARY, run_confirmation
from simlab.studies.inputs.models import DRAFTER, TARGET, AnswerOptions, value_or
from simlab.studies.inputs.priced_policies import with_references
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened, sample_trace
from simlab.studies.record import record
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.artefacts.optimum import Optimum, read_optimum
from simlab.traces.format.alone import writing_alone
from simlab.traces.reader import Trace
from simlab.tracking.tracker import check_trackers, tracking

WITHOUT_CHOICE = ("ddtree:budget=16",)
"""What is run where no policy is named and nothing was chosen, besides plain decoding and the chain."""

MOST_REPEATS = 10
"""Where a stop rule decides, and nothing else was asked for: repeats make the clock's noise small, and no more."""

_MIN_WIDTH, _EXACT_BUDGET = 64, 512


def confirm(
    trace: TraceSource | None = None,
    policies: Sequence[str] = (),
    *,
    choice: str | Path | None = None,
    prompts: str | Path | None = None,
    cost: str | Path | None = None,
    reprice: str | Path | None = None,
    target: str | None = None,
    draft: str | None = None,
    tap_offset: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    device_map: str | None = None,
    audit_device: str | None = None,
    execution: str | None = None,
    batch_invariant: bool = False,
    channels: Mapping[str, str] | None = None,
    threads: int | None = None,
    repeats: int | None = None,
    batch: int | None = None,
    until_interval: float | None = None,
    time_limit: float | None = None,
    limit: int | None = None,
    by: str | None = None,
    out: str | Path = "runs/confirm",
    resume: bool = False,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    seed: int | None = None,
    max_new_tokens: int | None = None,
    chat_template_kwargs: Mapping[str, object] | None = None,
    track: Sequence[str] = (),
) -> Confirmation:
    """Run policies with the real models on the prompts of a trace, and compare with its replay.

    Autoregressive decoding and the chain always run. The log, the result rows of both kinds and the summary are in
    ``out`` when this returns; progress goes to standard error.

    Args:
        trace: a trace, or where one is; None: the sample that comes with simlab.
        policies: as they are typed behind ``-p``, after those of ``choice``; without both one tree.
        choice: a file of ``simlab optimize --out``, of which the best policy and its closest rivals run.
        prompts: a file of prompts that are recorded first, into ``out/trace``; instead of a trace.
        cost: a cost file of exactly what is run; None: the packaged latency profile, if it is of exactly this.
        reprice: where that cost file is written, corrected by the rounds that ran; None: nowhere.
        target: a name, folder or Hub id; None: as the trace names it.
        draft: a name, folder, file of weights or Hub id; None: as the trace names it.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the trace was recorded.
        dtype: of the models' arithmetic.
        device: as torch names it.
        device_map: ``auto`` spreads a target over devices that is too large for one.
        audit_device: where the audit's float32 target runs; ``auto`` spreads it; None: as the run.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`; None: one operation after the other.
        batch_invariant: every pass of the target has one fixed shape; nothing is predicted then.
        channels: where the checkpoints of channels are now, by the channels' names; None: as the trace names them.
        threads: of the CPU; None: as torch chooses.
        repeats: how often each text is decoded; None: once, with a stop rule at most `MOST_REPEATS` times.
        batch: texts that are served at a time; None: each alone.
        until_interval: stop when every 95 % interval of a speed ratio reaches no further than this share of it.
        time_limit: stop after so many minutes of measuring, at a whole prompt.
        limit: the first so many prompts only.
        by: cut the tables by ``dataset``, ``context`` or ``turn`` as well.
        out: the folder of log, result rows and summary.
        resume: go on with the log that is in ``out``.
        temperature: of answers to ``prompts``; a trace brings its own. None: 0.
        top_p: likewise; None: 1, no cut.
        top_k: likewise; None: 0, no cut.
        seed: likewise; None: 0.
        max_new_tokens: likewise, of an answer; None: 256.
        chat_template_kwargs: likewise, of the tokenizer's chat template; None: none.
        track: experiment trackers that get the settings, the figures and the files; see
            `simlab.tracking.tracker.TRACKERS`.

    Raises:
        SimlabError: models, trace, policies, latency profile, log and options do not fit each other; nothing was run.
    """
    check_trackers(track)
    answers = AnswerOptions(temperature, top_p, top_k, seed, max_new_tokens, chat_template_kwargs)
    answers.check_prompts(prompts)
    if prompts is not None and trace is not None:
        raise UsageError("a confirmation runs the prompts of a trace or those of a file, not both; leave one out")
    optimum = None if choice is None else read_optimum(Path(choice))
    typed = [*(() if optimum is None else optimum.run), *policies] or list(WITHOUT_CHOICE)
    request = _PolicyRequest(tuple(typed), None if cost is None else Path(cost), draft, dtype, value_or(batch, 1))
    with at_the_door():
        options = ConfirmOptions(
            out=Path(out),
            target=target,
            draft=draft,
            dtype=dtype,
            device=device,
            device_map=device_map,
            audit_device=audit_device,
            threads=threads,
            limit=limit,
            repeats=_repeats(repeats, until_interval, time_limit),
            batch=value_or(batch, 1),
            until_interval=until_interval,
            time_limit_s=_time_limit_s(time_limit),
            resume=resume,
            # What is recorded first says in its manifest which layers were read.
            tap_offset=tap_offset if prompts is None else None,
            execution=value_or(execution, EAGER),
            batch_invariant=batch_invariant,
            channels=dict(channels or {}),
        )
    with writing_alone(options.out / LOG):
        check_out(options.out, resume)
        if prompts is None:
            recording = opened(trace)
        else:
            first, _ = request.policies_on(_trace_of_models(target, draft))
            _check_no_channels(first)
            recording = _recorded(Path(prompts), first, options, answers, tap_offset)
        asked, in_sample = request.policies_on(recording)
        chosen = None
        if choice is not None and optimum is not None:
            chosen = _prior_choice(Path(choice), optimum, recording, limit, asked)
        with tracking(track, "confirm", lambda: _tracked_settings(options, recording, asked, request.cost)) as tracker:
            confirmation = run_confirmation(
                options,
                recording,
                asked,
                request.cost,
                SummaryContext(in_sample, by, chosen),
                None if reprice is None else Path(reprice),
            )
            if tracker.is_asked:
                said = confirmation.to_json()
                tracker.results({key: said[key] for key in ("ran", "rows", "rank_agreement")})
                tracker.files(options.out / SUMMARY, options.out / RESULTS)
        return confirmation


def _tracked_settings(
    options: ConfirmOptions, trace: Trace, policies: Sequence[NamedPolicy], cost: Path | None
) -> dict[str, object]:
    """Everything that trackers are told of a run at its start: its settings, what it reads, by ids, and versions."""
    return asdict(options) | {
        "policies": {one.label: one.policy_id for one in policies},
        "trace": trace.place,
        "text_id": trace.text_id,
        "draft_ids": dict(trace.draft_ids),
        "cost_id": "packaged" if cost is None else read_cost_file(cost).cost_id,
        "versions": {"simlab": metadata.version("simlab"), **library_versions()},
    }


@dataclass(frozen=True, slots=True)
class _PolicyRequest:
    """Policies as they were typed, and what decides which artefacts they read.

    Attributes:
        typed: as they are typed behind ``-p``; one that comes twice is run once.
        cost: the cost file that was asked for.
        draft: the drafter that was asked for.
        dtype: in which the models run.
        batch: texts at a time.
    """

    typed: tuple[str, ...]
    cost: Path | None
    draft: str | None
    dtype: str
    batch: int

    def policies_on(self, trace: Trace | None) -> tuple[list[NamedPolicy], tuple[str, ...]]:
        """Make the policies, and list the labels of those that are judged in sample.

        Args:
            trace: whose models artefacts must be of; None where they are not known yet.
        """
        artefacts = artefacts_of_models(self.cost, trace, self.draft, self.dtype, self.batch)
        policies = with_references(list(dict.fromkeys(self.typed)), artefacts)
        return policies, artefacts.in_sample(policies)


def _check_no_channels(policies: Sequence[NamedPolicy]) -> None:
    """Refuse to record prompts for a policy that reads what is added to a trace afterwards.

    Raises:
        UsageError: a policy reads a channel.
    """
    for named in policies:
        for need in named.policy.needs.made:
            raise UsageError(
                f"{named.label} reads the channel {need.name}, which is added to a finished trace; record the prompts "
                "with `simlab record --prompts FILE --out DIR`, add it with `simlab record --trace DIR --add-channel "
                f"{need.name}=CHECKPOINT`, and confirm with --trace DIR"
            )


def _repeats(repeats: int | None, until_interval: float | None, time_limit: float | None) -> int:
    """How often each text is decoded, at most."""
    has_stop_rule = until_interval is not None or time_limit is not None
    return value_or(repeats, MOST_REPEATS if has_stop_rule else 1)


def _time_limit_s(minutes: float | None) -> float | None:
    """Turn a time limit from minutes into seconds.

    Raises:
        UsageError: it is negative, or no number.
    """
    if minutes is None:
        return None
    if not minutes >= 0:
        raise UsageError(f"--time-limit is in minutes and must not be negative; got {minutes:g}")
    return 60 * minutes


def _trace_of_models(target: str | None, draft: str | None) -> Trace | None:
    """Before prompts are recorded, a trace of the models that will record them, if it is the packaged one."""
    packaged = sample_trace()
    drafters = {kept.model.name for kept in packaged.manifest.draft_sets.values()}
    is_same = target in (None, packaged.manifest.target.name) and (draft is None or draft in drafters)
    return packaged if is_same else None


def _recorded(
    prompts: Path,
    policies: Sequence[NamedPolicy],
    options: ConfirmOptions,
    answers: AnswerOptions,
    tap_offset: str | None,
) -> Trace:
    """Record prompts so that every policy finds what it reads."""
    every = [route for one in policies for route in routes_of(one.policy) or (one.policy,)]
    needs = [one.needs for one in every]
    whole = [one.budget for one in every if one.needs.draft and one.needs.top_k is None]
    return record(
        value_or(options.target, TARGET),
        value_or(options.draft, DRAFTER),
        out=options.out / "trace",
        prompts=prompts,
        tap_offset=tap_offset,
        limit=options.limit,
        resume=options.resume,
        temperature=answers.temperature,
        top_p=answers.top_p,
        top_k=answers.top_k,
        seed=answers.seed,
        max_new_tokens=answers.max_new_tokens,
        chat_template_kwargs=answers.chat_template_kwargs,
        dtype=options.dtype,
        device=options.device,
        device_map=options.device_map,
        min_width=max([_MIN_WIDTH, *(one.top_k or 0 for one in needs)]),
        exact_budget=max([_EXACT_BUDGET, *whole]),
    )


def _prior_choice(
    path: Path, optimum: Optimum, trace: Trace, limit: int | None, policies: Sequence[NamedPolicy]
) -> PriorChoice:
    """Hold what was chosen beside the prompts that are run."""
    wanted = set(first_prompts(trace, limit))
    records = [one for one in trace.sequences() if one.index in wanted]
    return prior_choice(path, optimum, records, policies)
