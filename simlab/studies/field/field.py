"""The field, from beginning to end: record, time, choose on dev prompts, predict, compose, confirm, one table.

A script on the functions that simlab gives to everybody. Each step is done once and noted in ``steps.json``; an
interrupted field goes on where it was.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl

from simlab.analysis.confirm.table import FAILED
from simlab.analysis.table.summaries import summarise
from simlab.errors import PolicyError, PromptError, TimeUpError, UsageError
from simlab.options import study
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.model_options import value_or
from simlab.real_runner.profile.machine import plain_token_seconds
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.record.prompts import read_prompts
from simlab.studies.confirm.confirm import confirm
from simlab.studies.field.options import (
    FULL,
    PACKAGED,
    QUICK,
    FieldOptions,
    FieldSize,
    channels_of,
    expected_seconds,
    read_models,
)
from simlab.studies.field.rows import KINDS, Entry, FieldResult, Row, beside_size, bound_rows, field_rows, sources
from simlab.studies.field.systems import BASELINE, BESIDE, COMPOSED, COMPOSITION, EQUAL, FASTEST, HALF, NODES, SYSTEMS
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.progress import STEPS, Steps, announce
from simlab.studies.optimize.optimize import optimize
from simlab.studies.profile.profile import profile
from simlab.studies.record import add_channel, add_draft, record
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.confirmation import read_confirmation
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.format.alone import writing_alone
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import write_beside
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results, write_results
from simlab.untrusted.json_text import file_bytes

DEV, EVALUATION = "dev", "eval"


GPU_LIKE = "tile=64"
"""A pass of up to 64 tokens takes as long as one of 64, autoregressive decoding's too."""

_DATA = Path(str(files("simlab"))) / "data"
_PROMPTS = {DEV: _DATA / "field_dev_prompts.jsonl", EVALUATION: _DATA / "field_prompts.jsonl"}


@study(FieldOptions)
def field(options: FieldOptions) -> FieldResult:
    """Compare every system of the field: the same target, prompts and machine.

    Each step is announced on standard error, with about how long all of them take, and what an earlier run finished is
    taken as it is. All figures are in ``out/field.json`` when this returns.

    Raises:
        SimlabError: models, prompts or folder cannot be used; what was finished stays.
    """
    models = _models(options)
    known = dict.fromkeys(system.drafter for system in SYSTEMS)
    unread = [name for name in models["drafters"] if name not in known]
    if unread:
        raise UsageError(f"no system reads a draft set {unread[0]}; they are called {', '.join(known)}")
    size = QUICK if options.quick else FULL
    if options.confirm_minutes is not None:
        size = replace(size, confirm_minutes=options.confirm_minutes)
    given = {DEV: options.dev, EVALUATION: options.prompts}
    prompts = {side: _PROMPTS[side] if path is None else Path(path) for side, path in given.items()}
    asked = {
        "models": models,
        # The minutes of runs may be asked for anew.
        "size": {key: value for key, value in asdict(size).items() if key != "confirm_minutes"},
        "prompts": {side: _digest(path) for side, path in prompts.items()},
    }
    out = Path(options.out)
    with writing_alone(out / STEPS):
        steps = Steps(out, asked)
        return _Field(out, steps, models, size, prompts, options.confirm_minutes is not None).made()


def _models(options: FieldOptions) -> Row:
    """Target, drafters and channels with how they run, as JSON values."""
    running = {"dtype": options.dtype, "device": options.device, "execution": value_or(options.execution, EAGER)}
    named = PACKAGED if options.models is None else read_models(Path(options.models))
    return {**named, "drafters": {**named["drafters"], **dict(options.add_draft)}, **running}


def _digest(prompts: Path) -> str:
    """What a file of prompts holds, sha256."""
    try:
        return hashlib.sha256(file_bytes(prompts)).hexdigest()
    except OSError as error:
        raise PromptError(f"{prompts} cannot be read: {error}; give a file of prompts, JSON lines") from error


@dataclass(frozen=True, slots=True)
class _Field:
    """What all steps share; `made` goes through them."""

    out: Path
    steps: Steps
    models: Row
    size: FieldSize
    prompts: Mapping[str, Path]
    more: bool

    def trace(self, side: str) -> Trace:
        return open_trace(self.out / side)

    def cost(self, drafter: str) -> Path:
        return self.out / f"cost-{drafter}.json"

    def runs(self, drafter: str, group: str) -> Path:
        return self.out / f"confirm-{drafter}-{group}"

    def has_run(self, drafter: str, group: str) -> bool:
        """Whether an earlier run came to its end, or this one did."""
        return (self.runs(drafter, group) / "confirm.json").is_file()

    def made(self) -> FieldResult:
        self._say_how_long()
        for side in (EVALUATION, DEV):
            self._record(side)
        for drafter in self.models["drafters"]:
            self._profile(drafter)
        entries, left_out = self._chosen()
        groups = list(dict.fromkeys((entry.drafter, entry.group) for entry in entries))
        # Of a draft set what runs at its fastest first.
        drafters = list(dict.fromkeys(drafter for drafter, _ in groups))
        ran = [
            (drafter, group) for drafter in drafters for group in (FASTEST, EQUAL, BESIDE) if (drafter, group) in groups
        ]
        results: dict[tuple[str, str, str], pl.DataFrame] = {}
        bounds: list[Row] = []
        for drafter in drafters:
            predicted, gpu_like = self._predicted(drafter, entries)
            bounds += bound_rows(drafter, predicted)
            for group in (each for own, each in ran if own == drafter):
                measured = self._measured(drafter, group, entries)
                for kind, rows in zip(KINDS, (predicted, gpu_like, measured), strict=True):
                    results[drafter, kind, group] = predicted.clear() if rows is None else rows
        confirmations = [self._confirmation(*one) for one in ran if self.has_run(*one)]
        result = FieldResult(
            facts={**self._facts(confirmations), "systems": sources(entries)},
            rows=field_rows(entries, results),
            bounds=bounds,
            left_out=left_out,
            seconds=dict(self.steps.seconds),
            has_failed=any(bool(confirmation["has_failed"]) for confirmation in confirmations),
        )
        result.write(self.out / "field.json")
        return result

    def _say_how_long(self) -> None:
        """About how long what is left takes, from a few tokens of the target on this machine."""
        done, minutes = self.steps.seconds, self.size.confirm_minutes
        have_run = all(any(step.startswith(f"confirm {model} ") for step in done) for model in self.models["drafters"])
        if "choose" in done and (not minutes or (have_run and not self.more)):
            return
        token_s = plain_token_seconds(self.models["target"], self.models["dtype"], self.models["device"])
        limits = {DEV: self.size.dev_prompts, EVALUATION: self.size.prompts}
        texts = {
            side: sum(1 + len(prompt.later_turns) for prompt in read_prompts(path, limits[side]))
            for side, path in self.prompts.items()
        }
        expected = expected_seconds(self.size, self.models, token_s, texts)
        left = sum(seconds for step, seconds in expected.items() if step not in done)
        announce(
            f"The field takes about {left / 60 + minutes:.0f} minutes here, of which {minutes:g} are runs of the real "
            "models, and ends sooner where they have no prompts left. Interrupted, the same command goes on from what "
            f"is in {self.out}. Leave the machine alone meanwhile: other work on it is measured too."
        )

    def _record(self, side: str) -> None:
        """Record the prompts of a side with the first drafter; then every other draft set and channel."""
        models, path = self.models, self.out / side
        first, *others = models["drafters"]
        self.steps.once(
            f"record {side}",
            f"Recording the {side} prompts with {models['drafters'][first]}",
            lambda: record(
                models["target"],
                models["drafters"][first],
                out=path,
                prompts=self.prompts[side],
                limit=self.size.dev_prompts if side == DEV else self.size.prompts,
                max_new_tokens=self.size.max_new_tokens,
                dtype=models["dtype"],
                device=models["device"],
                resume=path.exists(),
            ),
        )
        additions = [("draft", self._add_draft, name) for name in others]
        additions += [("channel", self._add_channel, name) for name in models["channels"]]
        for kind, add, name in additions:
            title = f"Adding the {kind} {name} to the {side} prompts"
            self.steps.once(f"add {kind} {name} {side}", title, partial(add, path, name))

    def _add_draft(self, path: Path, name: str) -> None:
        if name not in open_trace(path).manifest.draft_sets:
            resume = (path / "unfinished").exists()
            add_draft(path, name, self.models["drafters"][name], device=self.models["device"], resume=resume)

    def _add_channel(self, path: Path, name: str) -> None:
        if name in open_trace(path).manifest.channels:
            return
        one, resume = self.models["channels"][name], (path / "unfinished" / f"channel-{name}.json").exists()
        running = {"dtype": self.models["dtype"], "device": self.models["device"]}
        add_channel(
            path, name, one["checkpoint"], settings=one["settings"], draft_set=one["drafter"], **running, resume=resume
        )

    def _profile(self, drafter: str) -> None:
        """Time rounds of a drafter, and what its channels and a late reading take."""
        models, size, out = self.models, self.size, self.cost(drafter)
        channels = {
            name: ProfileChannel(one["checkpoint"], dict(one["settings"]), tuple(one["units"]) or None)
            for name, one in channels_of(models, drafter).items()
        }
        self.steps.once(
            f"profile {drafter}",
            f"Timing rounds of {models['drafters'][drafter]}",
            lambda: profile(
                models["target"],
                models["drafters"][drafter],
                out=out,
                node_counts=(0, *size.node_counts),
                contexts=size.contexts,
                repeats=size.repeats,
                dtype=models["dtype"],
                device=models["device"],
                execution=models["execution"],
                channel=channels,
                catch_up=size.catch_up if drafter == next(iter(models["drafters"])) else None,
                resume=out.exists(),
            ),
        )

    def _chosen(self) -> tuple[list[Entry], dict[str, str]]:
        """What every system runs, chosen on dev prompts, and the best composition; and why some are left out."""
        path = self.out / "chosen.json"

        def work() -> None:
            entries: list[Entry] = []
            left_out: dict[str, str] = {}
            for drafter in self.models["drafters"]:
                own, without = choose(self.trace(DEV), drafter, self.cost(drafter))
                entries += [*own, *self._composed(drafter)]
                left_out |= without
            entries += _baselines(entries)
            text = json.dumps({"entries": [asdict(entry) for entry in entries], "left_out": left_out}, indent=1) + "\n"
            write_beside(path, lambda file: file.write(text.encode()))

        self.steps.once("choose", "Choosing settings on the dev prompts", work)
        kept = json_fields(file_bytes(path), str(path))
        entries = [
            Entry(
                system=one.text("system"),
                size=one.text("size"),
                drafter=one.text("drafter"),
                policy=one.text("policy"),
                chosen_from=one.integer("chosen_from"),
                own_nodes=one.integer("own_nodes") if one.values.get("own_nodes") is not None else None,
            )
            for one in kept.objects("entries")
        ]
        return entries, kept.texts("left_out")

    def _composed(self, drafter: str) -> list[Entry]:
        """The fastest composition on the dev prompts; its search is kept, with its report on the other prompts."""
        dev = self.trace(DEV)
        artefacts = TraceArtefacts(prices_for_trace(self.cost(drafter), dev, drafter), dev, drafter)
        # Other people's models may lack what some are composed of.
        known = [typed for typed in COMPOSED.get(drafter, ()) if _can_run(typed, artefacts, dev)]
        if not known:
            return []
        search = optimize(
            self.trace(EVALUATION),
            known,
            dev_trace=self.trace(DEV),
            cost=self.cost(drafter),
            draft_set=drafter,
            progress=False,
        )
        search.write(self.out / f"composition-{drafter}.json")
        return [Entry(COMPOSITION, FASTEST, drafter, search.optimum.best.policy, search.optimum.searched)]

    def _predicted(self, drafter: str, entries: Sequence[Entry]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Replay the policies of a draft set on the prompts that are reported: at the profile, and GPU-like."""
        out = self.out / f"predicted-{drafter}.parquet"

        def predict() -> None:
            policies = list(dict.fromkeys(entry.policy for entry in entries if entry.drafter == drafter))
            cost, trace = self.cost(drafter), self.trace(EVALUATION)
            made = replay(trace, policies, cost=cost, what_if=[GPU_LIKE], draft_set=drafter, progress=False)
            write_results(out, made.rows, trace.sequence_counts)

        title = f"Replaying the policies of {drafter} on the prompts of the report"
        self.steps.once(f"predict {drafter}", title, predict)
        rows, is_what_if = read_results(out), pl.col("cost_id").str.starts_with("what-if")
        return rows.filter(~is_what_if), rows.filter(is_what_if)

    def _measured(self, drafter: str, group: str, entries: Sequence[Entry]) -> pl.DataFrame | None:
        """Run policies of a draft set together on the real models; None where nothing ran, now or earlier.

        Time is shared out by the number of policies within a group, and among groups as the size of the field has it.
        """
        if group == BESIDE:
            return None
        together = [entry for entry in entries if entry.group == group]
        policies = list(dict.fromkeys(one.policy for one in together if one.drafter == drafter))
        share = len(policies) / len({(one.drafter, one.policy) for one in together})
        share *= self.size.equal_share if group == EQUAL else 1 - self.size.equal_share
        minutes, models, out = self.size.confirm_minutes * share, self.models, self.runs(drafter, group)

        def run() -> None:
            try:
                confirm(
                    self.trace(EVALUATION),
                    policies,
                    cost=self.cost(drafter),
                    target=models["target"],
                    draft=models["drafters"][drafter],
                    dtype=models["dtype"],
                    device=models["device"],
                    execution=models["execution"],
                    repeats=1,
                    time_limit=minutes,
                    out=out,
                    resume=out.exists(),
                )
            except TimeUpError as error:
                announce(f"Not measured: {error}")

        if minutes:
            title = f"Running {len(policies)} policies of {drafter} on the real models for {minutes:.3g} minutes"
            self.steps.once(f"confirm {drafter} {group}", title, run, again=self.more)
        if not self.has_run(drafter, group):
            return None
        return read_results(out / "results.parquet").filter(pl.col("kind") == "measured")

    def _confirmation(self, drafter: str, group: str) -> Row:
        """What the runs of a draft set were judged to be."""
        run = read_confirmation(self.runs(drafter, group) / "confirm.json")
        judged = [row for row in run.rows if row.get("lossless") is not None]
        return {
            "drafter": drafter,
            "group": group,
            "prediction": run.prediction,
            "policies": len(judged),
            "prompts": run.ran["prompts"],
            "texts": sum(int(str(one["num_texts"])) for one in judged),
            "same_texts": sum(int(str(one["num_same_texts"])) for one in judged),
            "rounds_equal_replay": all(one["counts_equal_replay"] for one in judged),
            "has_failed": any(one["lossless"] == FAILED or not one["counts_equal_replay"] for one in judged),
            "ended": run.ran["ended"],
            "versions": run.ran["versions"],
        }

    def _facts(self, confirmations: Sequence[Row]) -> Row:
        """What the figures are of."""
        trace = self.trace(EVALUATION)
        datasets: dict[str, set[str]] = {}
        for sequence in trace.sequences():
            datasets.setdefault(sequence.prompt.dataset, set()).add(sequence.prompt.prompt_id)
        return {
            "models": self.models,
            "size": asdict(self.size),
            "prompts": {name: len(ids) for name, ids in datasets.items()},
            "text_id": trace.text_id,
            "gpu_like": GPU_LIKE,
            "costs": {drafter: read_cost_file(self.cost(drafter)).device for drafter in self.models["drafters"]},
            "confirmations": confirmations,
        }


def _missing_channel(points: Sequence[NamedPolicy], dev: Trace) -> str:
    """The first channel that some policies read and a recording lacks; empty where it has them all."""
    needed = (channel.name for point in points for channel in point.policy.needs.made)
    return next((name for name in needed if name not in dev.manifest.channels), "")


def _can_run(typed: str, artefacts: TraceArtefacts, dev: Trace) -> bool:
    """Whether a recording and its prices have all that some policies read."""
    try:
        return not _missing_channel(parse_policies([typed], artefacts), dev)
    except PolicyError:
        return False


def choose(dev: Trace, drafter: str, cost: Path) -> tuple[list[Entry], dict[str, str]]:
    """What each system of a draft set runs at each size: of its settings that predicted to be fastest on dev prompts.

    A setting whose size nobody timed is taken where a system has no other.

    Args:
        dev: the recording of the dev prompts.
        drafter: one of its draft sets.
        cost: the latency profile of target and drafter.

    Returns:
        the policies, and why those systems are left out that cannot run on this recording.
    """
    prices, depth = prices_for_trace(cost, dev, drafter), dev.manifest.draft_sets[drafter].depth
    artefacts = TraceArtefacts(prices, dev, drafter)
    asked: list[tuple[str, str, list[NamedPolicy]]] = []
    left_out: dict[str, str] = {}
    for system in (one for one in SYSTEMS if one.drafter == drafter):
        sizes = {
            str(nodes): [system.equal.format(nodes=nodes, rest=max(nodes - depth, 1), depth=depth)] for nodes in NODES
        }
        typed = {**(sizes if system.equal else {}), FASTEST: list(system.searched)}
        try:
            own = [(system.name, size, parse_policies(some, artefacts)) for size, some in typed.items()]
        except PolicyError as error:
            left_out[system.name] = str(error)
            continue
        missing = _missing_channel([point for *_, points in own for point in points], dev)
        if missing:
            left_out[system.name] = f"the channel {missing} was not recorded"
        else:
            asked += own
    if not asked:
        return [], left_out
    # A policy that two systems have is replayed once, under the first of its names.
    labels = {point.policy_id: point.label for *_, points in reversed(asked) for point in reversed(points)}
    rows = replay(dev, list(labels.values()), cost=cost, draft_set=drafter, progress=False).rows
    summaries = {summary.policy_id: summary for summary in summarise(rows)}

    def rank(point: NamedPolicy) -> tuple[bool, float]:
        """Sizes that were timed first, then the faster ones."""
        one = summaries[point.policy_id]
        gap = prices.gap_of(point.policy, one.totals.nodes_per_round)
        return gap is None, float(np.nan_to_num(one.speed.tokens_per_s))

    entries = []
    for system_name, size, points in asked:
        best = summaries[max(points, key=rank).policy_id]
        drafted = best.totals.nodes_per_round
        is_own = size != FASTEST and abs(drafted - int(size)) >= HALF
        own_nodes = max(round(drafted), 1) if is_own else None
        entries.append(Entry(system_name, size, drafter, best.policy, len(points), own_nodes))
    return entries, left_out


def _baselines(entries: Sequence[Entry]) -> list[Entry]:
    """The baseline at each number of drafted tokens that another system came to."""
    drafter = next((entry.drafter for entry in entries if entry.system == BASELINE), None)
    sizes = sorted({entry.own_nodes for entry in entries if entry.own_nodes is not None})
    if drafter is None:
        return []
    return [Entry(BASELINE, beside_size(size), drafter, f"{BASELINE}:budget={size}", 1) for size in sizes]
