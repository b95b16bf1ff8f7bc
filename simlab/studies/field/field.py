"""The field, from beginning to end: record, time, choose on dev prompts, predict, confirm, one table.

A script on the functions that simlab gives to everybody. Each step is done once and noted in ``steps.json``; an
interrupted field goes on where it was.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import polars as pl

from simlab.analysis.confirm.table import FAILED
from simlab.errors import PromptError, TimeUpError, UsageError
from simlab.options import study
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.model_options import value_or
from simlab.real_runner.profile.machine import has_fast_bfloat16, plain_token_seconds
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.record.prompts import read_prompts
from simlab.studies.confirm.choice import REFERENCES
from simlab.studies.confirm.confirm import confirm
from simlab.studies.field.choice import PricedDrafts, choose
from simlab.studies.field.options import (
    AFTER,
    FULL,
    PACKAGED,
    QUICK,
    FieldOptions,
    FieldSize,
    channels_of,
    expected_seconds,
    read_models,
)
from simlab.studies.field.rows import (
    Entry,
    FieldResult,
    FieldRuns,
    Row,
    baselines_around,
    bound_rows,
    field_rows,
    sources,
)
from simlab.studies.field.systems import BASELINE, FASTEST, SYSTEMS
from simlab.studies.inputs.progress import STEPS, Steps, announce
from simlab.studies.profile.profile import profile
from simlab.studies.record import add_channel, add_draft, record
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.confirmation import read_confirmation
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file
from simlab.traces.format.documents import json_fields, value_of
from simlab.traces.format.files import write_beside
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results, write_results
from simlab.untrusted.json_text import file_bytes

DEV, EVALUATION = "dev", "eval"

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
        "prices": {name: read_cost_file(_cost_path(named)).cost_id for name, named in models["prices"].items()},
    }
    out = Path(options.out)
    with exclusive_lock(out / STEPS):
        steps = Steps(out, asked)
        return _Field(out, steps, models, size, prompts, options.confirm_minutes is not None).made()


def _models(options: FieldOptions) -> Row:
    """Target, drafters and channels with how they run and at what prices, as JSON values."""
    timed = [options.dtype or "bfloat16"]
    if options.dtype is None and options.device == "cpu":
        timed = ["bfloat16", "float32"][: 1 if options.quick else 2] if has_fast_bfloat16() else ["float32"]
    running = {
        "dtype": timed[0],
        "timed": timed,
        "device": options.device,
        "execution": value_or(options.execution, EAGER),
    }
    named = PACKAGED if options.models is None else read_models(Path(options.models))
    prices = {
        **({"h200": H200} if options.models is None else {}),
        **{key: str(path) for key, path in dict(options.prices).items()},
    }
    clash = next((name for name in prices if name in timed), None)
    if clash is not None:
        raise UsageError(f"the prices {clash} are this machine's own; give {prices[clash]} another name")
    return {**named, "drafters": {**named["drafters"], **dict(options.add_draft)}, **running, "prices": prices}


H200 = "smollm2-135m-h200-cuda_graphs"
"""The packaged latency profile by which the packaged drafter is judged beside this machine's own."""


def _cost_path(name: str) -> Path:
    """A latency profile that is named: a file, or one that comes with simlab."""
    packaged = {path.stem: path for path in packaged_cost_files()}
    return packaged.get(name, Path(name))


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

    def costs(self, drafter: str) -> dict[str, Path]:
        """The latency profiles of a draft set, by the name of the prices; those of this machine come first."""
        own = {dtype: self.out / f"cost-{drafter}-{dtype}.json" for dtype in self.models["timed"]}
        trace = self.trace(EVALUATION)
        draft_set = trace.manifest.draft_sets[drafter]
        given = {name: _cost_path(named) for name, named in self.models["prices"].items()}
        of_models = trace.manifest.target, draft_set.model, draft_set.block_size
        return own | {name: path for name, path in given.items() if read_cost_file(path).fits(*of_models)}

    def cost(self, drafter: str) -> Path:
        """That by which the real models run."""
        return self.out / f"cost-{drafter}-{self.models['dtype']}.json"

    def runs(self, drafter: str) -> Path:
        return self.out / f"confirm-{drafter}"

    def has_run(self, drafter: str) -> bool:
        """Whether an earlier run came to its end, or this one did."""
        return (self.runs(drafter) / "confirm.json").is_file()

    def made(self) -> FieldResult:
        self._say_how_long()
        for side in (EVALUATION, DEV):
            self._record(side)
        for drafter in self.models["drafters"]:
            for dtype in self.models["timed"]:
                self._profile(drafter, dtype)
        entries, left_out = self._chosen()
        drafters = list(dict.fromkeys(entry.drafter for entry in entries))
        predicted = {
            (drafter, prices): self._predicted(drafter, prices, entries)
            for drafter, prices in dict.fromkeys((entry.drafter, entry.prices) for entry in entries)
        }
        baseline = self._baseline(entries, predicted)
        measured, again = dict[str, pl.DataFrame](), dict[str, pl.DataFrame]()
        for drafter in drafters:
            ran = self._measured(drafter, entries)
            if ran is not None:
                measured[drafter] = ran
        for drafter in measured:
            after = self._again(drafter, entries)
            if after is not None:
                again[drafter] = after
        confirmations = [self._confirmation(drafter) for drafter in measured]
        drafts = {key: PricedDrafts(self.trace(EVALUATION), key[0], self.costs(key[0])[key[1]]) for key in predicted}

        def is_untimed(entry: Entry, drafted: float) -> bool:
            return drafts[entry.drafter, entry.prices].is_untimed(entry.policy, drafted)

        own = self.models["dtype"]
        result = FieldResult(
            facts={**self._facts(confirmations), "systems": sources(entries)},
            rows=field_rows(entries, FieldRuns(predicted, baseline, measured, again), is_untimed),
            bounds=[row for drafter in drafters for row in bound_rows(drafter, predicted[drafter, own])],
            left_out=left_out,
            seconds=dict(self.steps.seconds),
            has_failed=any(bool(confirmation["has_failed"]) for confirmation in confirmations),
        )
        result.write(self.out / "field.json")
        return result

    def _say_how_long(self) -> None:
        """About how long what is left takes, from a few tokens of the target on this machine."""
        done, minutes = self.steps.seconds, self.size.confirm_minutes
        have_run = any(step.startswith("confirm ") for step in done)
        if "choose" in done and (not minutes or (have_run and not self.more)):
            return
        token_s = plain_token_seconds(self.models["target"], self.models["dtype"], self.models["device"])
        limits = {DEV: self.size.dev_prompts, EVALUATION: self.size.prompts}
        texts = {
            side: sum(1 + len(prompt.later_turns) for prompt in read_prompts(path, limits[side]))
            for side, path in self.prompts.items()
        }
        expected = expected_seconds(self.size, self.models, token_s, texts)
        left = sum(
            seconds
            for step, seconds in expected.items()
            if step not in done or (self.more and minutes and step.endswith(AFTER))
        )
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
        channel, resume = self.models["channels"][name], (path / "unfinished" / f"channel-{name}.json").exists()
        running = {"dtype": self.models["dtype"], "device": self.models["device"]}
        add_channel(
            path,
            name,
            channel["checkpoint"],
            settings=channel["settings"],
            draft_set=channel["drafter"],
            **running,
            resume=resume,
        )

    def _profile(self, drafter: str, dtype: str, after: Path | None = None) -> None:
        """Time rounds of a drafter in some dtype, its channels and a late reading; once more into ``after``."""
        models, size, path = self.models, self.size, after or self.out / f"cost-{drafter}-{dtype}.json"
        channels = {
            name: ProfileChannel(channel["checkpoint"], dict(channel["settings"]), tuple(channel["units"]) or None)
            for name, channel in channels_of(models, drafter).items()
        }
        self.steps.once(
            f"profile {path.stem.removeprefix('cost-')}",
            f"Timing rounds of {models['drafters'][drafter]} in {dtype}{' once more' if after else ''}",
            lambda: profile(
                models["target"],
                models["drafters"][drafter],
                out=path,
                node_counts=(0, *size.counts_of(drafter)),
                contexts=size.contexts,
                repeats=size.repeats_after if after else size.repeats,
                dtype=dtype,
                device=models["device"],
                execution=models["execution"],
                channel=channels,
                catch_up=size.catch_up if drafter == next(iter(models["drafters"])) else None,
                resume=path.exists(),
            ),
            again=after is not None and not path.exists(),
        )

    def _chosen(self) -> tuple[list[Entry], dict[str, str]]:
        """What every system runs, chosen on dev prompts, and why some are left out."""
        path = self.out / "chosen.json"

        def work() -> None:
            entries: list[Entry] = []
            left_out: dict[str, str] = {}
            for drafter in self.models["drafters"]:
                costs = self.costs(drafter)
                own, without = choose(self.trace(DEV), drafter, costs)
                entries, left_out = entries + own, left_out | without
                others = [name for name in self.models["prices"] if name not in costs]
                left_out |= {f"draft set {drafter}, {name}": "these prices are of other models" for name in others}
            text = json.dumps({"entries": [asdict(entry) for entry in entries], "left_out": left_out}, indent=1) + "\n"
            write_beside(path, lambda file: file.write(text.encode()))

        self.steps.once("choose", "Choosing settings on the dev prompts", work)
        fields = json_fields(file_bytes(path), str(path))
        return [value_of(Entry, entry) for entry in fields.objects("entries")], fields.texts("left_out")

    def _replayed(
        self, step: str, drafter: str, policies: Iterable[str], cost: Path, again: bool = False
    ) -> pl.DataFrame:
        """Policies of a draft set on the prompts of the report, at some prices; kept under the name of the step."""
        out = self.out / f"{step.replace(' ', '-')}.parquet"

        def predict() -> None:
            trace = self.trace(EVALUATION)
            made = replay(trace, list(dict.fromkeys(policies)), cost=cost, draft_set=drafter, progress=False)
            write_results(out, made.rows, trace.sequence_counts)

        self.steps.once(step, f"Replaying the prompts of the report: {step}", predict, again)
        return read_results(out)

    def _predicted(self, drafter: str, prices: str, entries: Sequence[Entry]) -> pl.DataFrame:
        policies = (entry.policy for entry in entries if (entry.drafter, entry.prices) == (drafter, prices))
        return self._replayed(f"predict {drafter} {prices}", drafter, policies, self.costs(drafter)[prices])

    def _baseline(
        self, entries: Sequence[Entry], predicted: Mapping[tuple[str, str], pl.DataFrame]
    ) -> dict[str, pl.DataFrame]:
        """The baseline around the drafted tokens of every policy, by the name of the prices."""
        drafter = next((entry.drafter for entry in entries if entry.system == BASELINE), None)
        if drafter is None:
            return {}
        rows_by_prices = {}
        for prices, cost in self.costs(drafter).items():
            names = set()
            for (own, by), rows in predicted.items():
                if by == prices:
                    labels = [entry.label for entry in entries if (entry.drafter, entry.prices) == (own, by)]
                    of_field = rows.filter(pl.col("policy").is_in(labels)).group_by("policy", maintain_order=True)
                    means = of_field.agg(pl.col("drafted").sum() / pl.col("rounds").sum())["drafted"]
                    names |= {label for mean in means for label in baselines_around(mean) if label.startswith(BASELINE)}
            rows_by_prices[prices] = self._replayed(f"predict {BASELINE} {prices}", drafter, sorted(names), cost)
        return rows_by_prices

    def _fastest_here(self, drafter: str, entries: Sequence[Entry]) -> list[str]:
        own = (entry for entry in entries if (entry.size, entry.prices) == (FASTEST, self.models["dtype"]))
        return list(dict.fromkeys(entry.policy for entry in own if entry.drafter == drafter))

    def _measured(self, drafter: str, entries: Sequence[Entry]) -> pl.DataFrame | None:
        """Run a draft set's fastest policies together on the real models; None where nothing ran, now or earlier."""
        policies = self._fastest_here(drafter, entries)
        # About as many prompts of each: with every draft set the policies run that it is compared with.
        chosen = [len(self._fastest_here(name, entries)) for name in self.models["drafters"]]
        share = (len(policies) + len(REFERENCES)) / max(sum(number + len(REFERENCES) for number in chosen if number), 1)
        minutes, models, out = self.size.confirm_minutes * share, self.models, self.runs(drafter)

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

        if minutes and policies:
            title = f"Running {len(policies)} policies of {drafter} on the real models for {minutes:.3g} minutes"
            self.steps.once(f"confirm {drafter}", title, run, again=self.more)
        if not self.has_run(drafter):
            return None
        return read_results(out / "results.parquet").filter(pl.col("kind") == "measured")

    def _again(self, drafter: str, entries: Sequence[Entry]) -> pl.DataFrame | None:
        """What ran, predicted by a profile that is made after the runs; None where none is asked for."""
        if not self.size.repeats_after:
            return None
        dtype, ran = self.models["dtype"], self.more and self.size.confirm_minutes > 0
        cost = self.out / f"cost-{drafter}-{dtype}{AFTER}.json"
        if ran:
            cost.unlink(missing_ok=True)
        self._profile(drafter, dtype, cost)
        policies = self._fastest_here(drafter, entries)
        return self._replayed(f"predict {drafter} {dtype} after", drafter, policies, cost, again=ran)

    def _confirmation(self, drafter: str) -> Row:
        """What the runs of a draft set were judged to be."""
        run = read_confirmation(self.runs(drafter) / "confirm.json")
        judged = [row for row in run.rows if row.get("lossless") is not None]
        return {
            "drafter": drafter,
            "prediction": run.prediction,
            "policies": len(judged),
            "prompts": run.ran["prompts"],
            "texts": sum(int(str(policy["num_texts"])) for policy in judged),
            "same_texts": sum(int(str(policy["num_same_texts"])) for policy in judged),
            "ties": sum(int(str(policy["num_ties"])) for policy in judged),
            "rounds_equal_replay": all(policy["counts_equal_replay"] for policy in judged),
            "has_failed": any(policy["lossless"] == FAILED or not policy["counts_equal_replay"] for policy in judged),
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
            "prices": {drafter: self._machines(drafter) for drafter in self.models["drafters"]},
            "confirmations": confirmations,
        }

    def _machines(self, drafter: str) -> dict[str, str]:
        """On what the prices of a draft set were timed, by their name."""
        files = {name: read_cost_file(path) for name, path in self.costs(drafter).items()}
        return {name: f"{file.device}, {file.dtype}, {file.execution}" for name, file in files.items()}
