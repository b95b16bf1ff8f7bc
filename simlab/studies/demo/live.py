"""The part of the demo that runs models: sizes that fit the time, record, profile, optimize, confirm.

Every step is a command of simlab with its options, which is printed before it runs, and is done once.
"""

import hashlib
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from simlab.analysis.confirm.table import FAILED
from simlab.analysis.optimize.candidate_sums import prompt_hash
from simlab.errors import PromptError, UsageError
from simlab.options import typed_words
from simlab.real_runner.profile.machine import has_fast_bfloat16, plain_token_seconds
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import read_prompts, read_rows
from simlab.real_runner.targets.token_text import load_decoder
from simlab.studies.confirm.confirm import confirm
from simlab.studies.confirm.request import ConfirmRequest
from simlab.studies.inputs.progress import Steps, announce
from simlab.studies.inputs.trace import longest_context
from simlab.studies.optimize.optimize import optimize
from simlab.studies.optimize.options import OptimizeOptions
from simlab.studies.profile.options import ProfileRequest
from simlab.studies.profile.profile import profile
from simlab.studies.record import record
from simlab.studies.replay.replay import ReplayOptions, replay
from simlab.studies.show_round import most_telling_round, round_text
from simlab.traces.artefacts.confirmation import read_confirmation
from simlab.traces.artefacts.ngram import find_packaged_ngram
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import write_beside
from simlab.traces.reader import Trace, open_trace
from simlab.untrusted.json_text import file_bytes

SEARCHED = ("chain:length=3/5", "presto:budget=4/6/8/12/16/24", "caddtree:budget=48", "price:budget=48")
"""Among these, the whole chain and `ddtree` of every budget the demo chooses on the dev prompts."""

BUDGETS = "ddtree:budget=1..48"
"""What the report draws beside the choice."""

_DATA = Path(str(files("simlab"))) / "data"
DEV, FRESH = _DATA / "demo_dev_prompts.jsonl", _DATA / "demo_prompts.jsonl"

# How much fits into the time.

ANSWERS = (256, 96, 48, 24)
"""New tokens of an answer, at most: the longest at which there is room for `_ENOUGH` prompts, or for all."""

MOST_PACKAGED = 96
"""Of the packaged prompts, which ask for short answers."""

_NODE_COUNTS, _FEW_NODE_COUNTS = (0, 3, 5, 7, 8, 12, 16, 24, 32, 48), (0, 3, 7, 16, 48)
_RECORD_SHARE, _PROFILE_SHARE, _LEFT_AT_END = 0.3, 0.25, 0.1
_ENOUGH, _FEWEST, _SWEEPS = 20, 4, 5
"""Prompts of a half at which answers may be longer, the fewest of a half, and sweeps over all sizes of a round: with
time for fewer of them, few sizes are timed."""
_TIMED_PASS, _PER_POSITION = 10.0, 2.0
"""What a sample of a round takes, and a recorded position, in tokens of autoregressive decoding."""

_PER_VISIT, _RUN = 20.0, 7
"""What a visit of the profile to a cell takes, in the same tokens, and policies of the confirmation, at most."""

_REPEATS = 15
"""Samples of a cell that a short look at a machine takes; the time limit may end it before."""
_LOWEST_CONTEXT, _CONTEXT_STEP = 64, 64
_LATE = 1.2
"""So many times the minutes that were given are said to be more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is recorded and timed.

    Attributes:
        token_s: of a token of autoregressive decoding here, when the plan was made.
        dev: prompts to choose on.
        fresh: prompts to report on.
        max_new_tokens: of an answer.
        node_counts: that rounds are timed at.
    """

    token_s: float
    dev: int
    fresh: int
    max_new_tokens: int
    node_counts: tuple[int, ...]

    def least_s(self, load_s: float) -> float:
        """About how long it takes at the least, of which `least_confirmation_s` is a part.

        Args:
            load_s: what loading the models takes.
        """
        tokens = _PER_POSITION * (self.dev + self.fresh) * self.max_new_tokens + 4 * _PER_VISIT * len(self.node_counts)
        return 3 * load_s + self.token_s * tokens + self.least_confirmation_s(load_s)

    def least_confirmation_s(self, load_s: float) -> float:
        """About how long loading, warming up and one prompt under every policy take."""
        return load_s + 2 * _RUN * self.max_new_tokens * self.token_s


def planned(token_s: float, seconds: float, dev: int, fresh: int, longest: int) -> Plan:
    """The plan that fits into some time, or the smallest that there is.

    Args:
        token_s: of a token of autoregressive decoding here.
        seconds: of everything.
        dev: prompts that there are to choose on.
        fresh: prompts that there are to report on.
        longest: new tokens of an answer, at most.

    >>> planned(0.01, 600.0, dev=40, fresh=40, longest=256)
    Plan(token_s=0.01, dev=40, fresh=40, max_new_tokens=96, node_counts=(0, 3, 5, 7, 8, 12, 16, 24, 32, 48))
    >>> planned(0.02, 60.0, dev=40, fresh=20, longest=256)
    Plan(token_s=0.02, dev=12, fresh=6, max_new_tokens=24, node_counts=(0, 3, 7, 16, 48))
    """
    room = _RECORD_SHARE * seconds / (_PER_POSITION * token_s)
    answers = [tokens for tokens in ANSWERS if tokens <= longest]
    wanted = min(_ENOUGH, dev) + min(_ENOUGH, fresh)
    tokens = next((length for length in answers if room >= wanted * length), answers[-1])
    share = min(1.0, room / tokens / (dev + fresh))
    num_dev, num_fresh = (min(available, max(_FEWEST, int(share * available))) for available in (dev, fresh))
    samples = _PROFILE_SHARE * seconds / (_TIMED_PASS * token_s)

    is_enough = samples >= _SWEEPS * 2 * (len(_NODE_COUNTS) + 1)
    return Plan(token_s, num_dev, num_fresh, tokens, _NODE_COUNTS if is_enough else _FEW_NODE_COUNTS)


# The prompts: packaged, in two files, or the halves of one.


def split_prompts(path: Path, out: Path) -> tuple[Path, Path]:
    """Write the two halves of a prompt file; which half a prompt is in depends on its dataset and its name alone.

    It is the half that `simlab optimize` gives it.

    Raises:
        PromptError: the file cannot be read.
        UsageError: a half has fewer than two prompts.
    """
    known = {prompt.prompt_id: prompt for prompt in read_prompts(path)}
    halves: tuple[list[str], list[str]] = ([], [])
    for row in read_rows(path, None):
        if row.prompt_id in known:
            named = {**row.fields.data, "id": row.prompt_id, "dataset": row.dataset}
            halves[prompt_hash((row.dataset, row.prompt_id)) & 1].append(json.dumps(named, ensure_ascii=False) + "\n")
    if min(map(len, halves)) < 2:
        raise UsageError(
            f"{path} has {len(known)} prompts, of which {len(halves[0])} would be chosen on and {len(halves[1])} "
            "reported on; give more prompts, or others to choose on with --dev-prompts FILE"
        )
    for name, lines in zip(("dev.jsonl", "fresh.jsonl"), halves, strict=True):
        write_beside(out / name, lambda file, lines=lines: file.write("".join(lines).encode()))  # type: ignore[misc]
    return out / "dev.jsonl", out / "fresh.jsonl"


# The steps.


@dataclass(frozen=True, slots=True)
class Models:
    """Which models run, and how."""

    target: str
    draft: str
    dtype: str | None
    device: str


class Live:
    """A run of all steps in a folder, which goes on where an earlier one was.

    Args:
        out: the folder.
        models: that run.
        prompts: to choose on, and to report on; None: packaged ones. Without the first, the second are split.
        minutes: of everything, about.

    Attributes:
        cost: the latency profile.
        fresh: the recording that is reported on.
        optimum: the choice.
    """

    def __init__(self, out: Path, models: Models, prompts: tuple[Path | None, Path | None], minutes: float) -> None:
        self.out, self._seconds = out, 60 * minutes
        self.cost, self.fresh, self.optimum = out / "cost.json", out / "fresh", out / "optimize.json"
        dtype = models.dtype or ("bfloat16" if models.device != "cpu" or has_fast_bfloat16() else "float32")
        self.models = {**asdict(models), "dtype": dtype}
        self._longest = MOST_PACKAGED if prompts == (None, None) else ANSWERS[0]
        digests = {name: _digest(path) for name, path in zip(("dev", "fresh"), prompts, strict=True)}
        self._steps = Steps(out, {**self.models, "prompts": digests})
        dev, fresh = prompts
        if fresh is None:
            self._prompts = (DEV if dev is None else dev), FRESH
        else:
            self._prompts = split_prompts(fresh, out) if dev is None else (dev, fresh)
        chosen_on, others = (len(read_prompts(path)) for path in self._prompts)
        self._there = chosen_on, others
        self._begun = time.monotonic() - sum(self._steps.seconds.values())

    def made(self) -> tuple[list[tuple[str, str]], bool]:
        """Go through all steps.

        Returns:
            Titles and texts, the verdict first; and whether a text is not the target's, or rounds are not those of
            their replay.
        """
        plan = self._planned()
        self._record("2/7  Dev prompts are recorded", "dev", self._prompts[0], plan.dev, plan)
        self._record("3/7  Prompts to report on are recorded", "fresh", self._prompts[1], plan.fresh, plan)
        traces = open_trace(self.out / "dev"), open_trace(self.fresh)
        profiled = self._profile(plan, max(longest_context(trace, None) for trace in traces))
        chosen = self._choose(traces)
        confirmed = self._confirm(plan)
        run = read_confirmation(self.out / "confirm" / "confirm.json")
        num_run = int(str(run.ran["prompts"]))
        self._replay_budgets(num_run)
        left_out = self._left_out(plan, num_run)
        parts = [
            (f"Verdict, on {num_run} prompts", confirmed),
            *([("What did not fit into the time", left_out)] if left_out else []),
            ("The latency profile of this machine, measured briefly", profiled),
            (f"The choice, on {_prompts_of(traces[0])} dev prompts", f"{chosen}\nChoice: {self.optimum}"),
            ("One round of the recording", _round_text(traces[1], self.models["target"])),
        ]
        judged = [row for row in run.rows if row.get("lossless") is not None]
        has_failed = any(row["lossless"] == FAILED or not row["counts_equal_replay"] for row in judged)
        return parts, has_failed

    def _step(
        self,
        title: str,
        name: str,
        command: str,
        options: object,
        run: Callable[[], object],
    ) -> str:
        """Run a command once; its text, which is kept."""
        text = self.out / f"{name}.txt"

        def work() -> None:
            announce(f"$ {shlex.join(typed_words(command, options))}")
            printed = str(run()) + "\n"
            write_beside(text, lambda file: file.write(printed.encode()))

        if name in self._steps.seconds:
            announce(f"{title}: kept from an earlier run")
        self._steps.once(name, title, work)
        return file_bytes(text).decode().rstrip("\n")

    def _planned(self) -> Plan:
        """Sizes, from a few tokens of the target; those of an earlier run stay."""
        path = self.out / "plan.json"
        available = self._there

        def work() -> None:
            token_s = plain_token_seconds(*(str(self.models[name]) for name in ("target", "dtype", "device")))
            made = planned(token_s, self._seconds, *available, self._longest)
            text = json.dumps(asdict(made)) + "\n"
            write_beside(path, lambda file: file.write(text.encode()))

        self._steps.once("plan", "1/7  A few tokens are timed, and sizes chosen", work)
        fields = json_fields(file_bytes(path), str(path))
        whole = {name: fields.integer(name) for name in ("dev", "fresh", "max_new_tokens")}
        plan = Plan(fields.number("token_s"), node_counts=fields.integers("node_counts"), **whole)
        announce(
            f"A token takes {1000 * plan.token_s:.0f} ms. In about {self._seconds / 60:g} minutes: {plan.dev} of "
            f"{available[0]} dev prompts, {plan.fresh} of {available[1]} to report on, answers of up to "
            f"{plan.max_new_tokens} tokens, rounds of {len(plan.node_counts)} sizes."
        )
        least = plan.least_s(self._steps.seconds["plan"])
        if least > _LATE * self._seconds:
            announce(f"These are the least sizes, and take about {least / 60:.1f} minutes here, more than were given.")
        return plan

    def _left_out(self, plan: Plan, num_run: int) -> str:
        """What the time left out, in sentences; empty: nothing."""
        (dev, fresh), longest, sentences = self._there, self._longest, list[str]()
        if (plan.dev, plan.fresh) != (dev, fresh):
            sentences.append(
                f"{plan.dev} of {dev} prompts to choose on and {plan.fresh} of {fresh} others were recorded"
            )
        if num_run < plan.fresh:
            sentences.append(f"{num_run} of these {plan.fresh} ran")
        if plan.max_new_tokens < longest:
            sentences.append(f"answers end at {plan.max_new_tokens} tokens in place of {longest}")
        if plan.node_counts != _NODE_COUNTS:
            sentences.append("rounds of few sizes were timed")
        took = sum(self._steps.seconds.values())
        if took > _LATE * self._seconds:
            sentences.append(f"it took {took / 60:.1f} minutes, as the least sizes do or other work on the machine")
        if not sentences:
            return ""
        return (
            f"In {self._seconds / 60:g} minutes: {'; '.join(sentences)}. For more, give more --minutes and another "
            "--out."
        )

    def _record(self, title: str, name: str, prompts: Path, limit: int, plan: Plan) -> None:
        folder = self.out / name
        options = RecordOptions(
            **{**self.models, "device": (self.models["device"],)},
            prompts=prompts,
            limit=limit,
            max_new_tokens=plan.max_new_tokens,
            out=folder,
            resume=folder.exists(),
        )
        self._step(title, f"record-{name}", "record", options, lambda: f"{_prompts_of(record.run(options))} prompts")

    def _profile(self, plan: Plan, longest: int) -> str:
        """Time rounds at the shortest and at the longest context that there is."""
        last = max(_CONTEXT_STEP * -(-longest // _CONTEXT_STEP), 2 * _LOWEST_CONTEXT)
        options = ProfileRequest(
            **self.models,
            out=self.cost,
            node_counts=plan.node_counts,
            contexts=(_LOWEST_CONTEXT, last),
            repeats=_REPEATS,
            time_limit=round(_PROFILE_SHARE * self._seconds / 60, 2),
            resume=self.cost.exists(),
        )
        title = "4/7  A latency profile of this machine is measured"
        return self._step(title, "profile", "profile", options, lambda: profile.run(options).text())

    def _choose(self, traces: tuple[Trace, Trace]) -> str:
        """Choose what is predicted to be fastest on one trace, and see how it and every budget do on the other."""
        digest = traces[0].manifest.tokenizer_digest
        has_ngram = find_packaged_ngram(digest) is not None
        searched = tuple(policy for policy in SEARCHED if has_ngram or not policy.startswith("presto"))
        dev, fresh = (trace.location for trace in traces)
        search = OptimizeOptions(fresh, searched, dev_trace=dev, cost=(self.cost,), out=self.optimum, progress=False)
        title = "5/7  Policies are searched on the dev prompts, and the best is compared with others on the fresh ones"
        return self._step(title, "optimize", "optimize", search, lambda: optimize.run(search).text())

    def _confirm(self, plan: Plan) -> str:
        """Run what was chosen, in the time that is left, or in twice what one prompt takes by the plan."""
        out = self.out / "confirm"
        left = self._seconds * (1 - _LEFT_AT_END) - (time.monotonic() - self._begun)
        least = 2 * plan.least_confirmation_s(self._steps.seconds["plan"])
        options = ConfirmRequest(
            **self.models,
            trace=str(self.fresh),
            choice=self.optimum,
            cost=self.cost,
            out=out,
            repeats=1,
            time_limit=round(max(left, least) / 60, 2),
            resume=out.exists(),
        )
        best = read_optimum(self.optimum).best.policy
        title = f"6/7  The choice, {best}, and its rivals run on the prompts to report on"
        return self._step(title, "confirmed", "confirm", options, lambda: confirm.run(options).text())

    def _replay_budgets(self, prompts: int) -> None:
        """Every budget on the prompts that ran, for the report."""
        rows = self.out / "budgets.parquet"
        options = ReplayOptions(
            str(self.fresh),
            (BUDGETS,),
            cost=(self.cost,),
            limit=prompts,
            out=rows,
            progress=False,
            resume=rows.exists(),
        )
        title = "     Every budget is replayed, for the report"
        self._step(title, "budgets", "replay", options, lambda: replay.run(options).text())


def _digest(path: Path | None) -> str:
    """What a file of prompts holds, sha256; packaged ones are known by their absence."""
    try:
        return "packaged" if path is None else hashlib.sha256(file_bytes(path)).hexdigest()
    except OSError as error:
        raise PromptError(
            f"{path} cannot be read: {error.strerror or error}; give a file of prompts, JSON lines"
        ) from error


def _prompts_of(trace: Trace) -> int:
    return len({(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in trace.sequences()})


def _round_text(trace: Trace, target: str) -> str:
    """Show the round in which a tree gained most over the chain."""
    shown = most_telling_round(trace.recorded(trace.draft_name()))
    if shown is None:
        return "In this recording the tree never accepted more than the chain, so there is no round to show."
    return round_text(*shown, decode=load_decoder(target))
