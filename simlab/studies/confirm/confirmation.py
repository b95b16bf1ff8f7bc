"""What a confirmation found: as people read it, and as the file that a report is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from simlab.analysis.confirm.errors import PredictionErrors, Staleness
from simlab.analysis.confirm.table import (
    FAILED,
    ConfirmedPolicy,
    RankAgreement,
    WinnerComparison,
    agreement_text,
    machine_table,
)
from simlab.analysis.confirm.text import (
    ERROR_NOTES,
    confirm_blocks,
    confirm_notes,
    confirm_table,
    differences_text,
    error_table,
    prediction_verdict,
    same_texts_sentence,
    stage_table,
    verdict_text,
)
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import SPEEDUP, within_width
from simlab.studies.confirm.batch import served_note
from simlab.studies.confirm.choice import PriorChoice
from simlab.studies.inputs.artefacts import in_sample_note
from simlab.studies.inputs.prices import Prices
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.confirmation import FORMAT, FORMAT_VERSION

_STOPPED = (
    "The run ended when its intervals were tight, not after a number of {units} fixed beforehand. That was looked at\n"
    "after 20 {units} and whenever a quarter more had run; who was ahead was not looked at."
)
_OVER_FIXED = (
    "Speedup: over autoregressive decoding in passes of the same rows, which is not its fastest implementation; same "
    "prompts."
)
_OVER_BATCH = (
    "Speedup: over autoregressive decoding of as many texts at a time, one token of each in a pass; same prompts."
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What was run, how far it came and why it ended.

    Attributes:
        machine: flat facts: device, threads, dtype, execution, names of target and drafter, repeats at most; and as
            ``fixed_rows`` the rows of each pass where all have as many, else 0.
        versions: of the libraries.
        prompts: that were run whole, each once; ``prompt_runs`` counts each repeat.
        ended: ``all`` texts were run, the ``interval`` was tight, or the ``time`` was up.
        half_width: of the widest 95 % interval of a speed ratio, relative; infinite where not known.
        until_interval, time_limit_s: what it was to be; None: nothing was asked for.
        batch: texts at a time.
        groups: of several texts at a time, that were served whole; ``group_runs`` counts each repeat.
        speeds: tokens per second of all texts of a batch together, filler requests among them, by the label of the
            policy; intervals are over groups.
        bound: how far the difference of two logits may be off in this dtype, as measured.
    """

    machine: Mapping[str, str | int]
    versions: Mapping[str, str]
    prompts: int
    prompt_runs: int
    ended: str
    half_width: float
    until_interval: float | None
    time_limit_s: float | None
    batch: int = 1
    groups: int = 0
    group_runs: int = 0
    speeds: Mapping[str, Estimate] = field(default_factory=dict)
    bound: float = 0.0

    @property
    def unit(self) -> str:
        """What intervals are over, in the singular."""
        return "prompt" if self.batch == 1 else "group"

    def text(self) -> str:
        """How the run ended, in a line."""
        runs = "" if self.prompt_runs == self.prompts else f", {self.prompt_runs} runs of a prompt"
        if self.batch != 1:
            repeats = "" if self.group_runs == self.groups else f", {self.group_runs} runs of a group"
            runs = f" in {self.groups} group{'' if self.groups == 1 else 's'}{repeats}"
        why = {
            "all": "every text was run",
            "interval": "the intervals are tight",
            "time": "time was up, a prompt that was cut off is left out",
        }[self.ended]
        wanted = "" if self.until_interval is None else f" (asked for: {100 * self.until_interval:g} %)"
        known = self.half_width < float("inf")
        width = f"; widest interval of a speed ratio ±{100 * self.half_width:.1f} %{wanted}" if known else ""
        num = f"{self.prompts} prompt{'' if self.prompts == 1 else 's'}"
        return f"{why}: {num}{runs}{width}"

    def to_json(self) -> dict[str, object]:
        """The values of ``simlab confirm --json`` under ``ran``."""
        return {
            **self.machine,
            "batch": self.batch,
            **({} if self.batch == 1 else {"groups": self.groups, "group_runs": self.group_runs}),
            "bound": self.bound,
            "versions": dict(self.versions),
            "prompts": self.prompts,
            "prompt_runs": self.prompt_runs,
            "ended": self.ended,
            "half_width": self.half_width if self.half_width < float("inf") else None,
            "until_interval": self.until_interval,
            "time_limit_s": self.time_limit_s,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Confirmation(StudyResult):
    """What a confirmation found: predictions, measurements, verdicts, and how far they agree.

    Attributes:
        heading: what was replayed and run, in lines.
        policies: a row each.
        won: None where no policy can have won.
        errors: of the prediction, of each policy that was measured.
        order: whether the prediction orders policies as the measurement does.
        differences: from the trace, as flat values; None where the two are not compared.
        in_sample: labels of policies whose tables or counts are of the very texts of the trace.
        by: what tables are cut by: ``dataset``, ``context`` or ``turn``; None: one table of all.
        chosen: what was chosen beforehand, and where; None: nothing was.
        unpriced: why nothing is predicted of policies whose channels have no price, in sentences; empty without any.
        slices: rows of each slice; empty where the tables are not cut.
        stale: how far the latency profile is from the rounds that ran; None where they are not compared.
    """

    simlab_version: str
    text_id: str
    draft_ids: dict[str, str]
    prices: Prices
    heading: str
    ran: RunFacts
    policies: tuple[ConfirmedPolicy, ...]
    won: WinnerComparison | None
    errors: tuple[PredictionErrors, ...]
    order: RankAgreement
    differences: tuple[dict[str, object], ...] | None
    in_sample: tuple[str, ...] = ()
    by: str | None = None
    chosen: PriorChoice | None = None
    unpriced: str = ""
    slices: tuple[ConfirmedPolicy, ...] = ()
    stale: Staleness | None = None

    PICTURES: ClassVar[str] = "simlab.studies.plot:confirmation_pictures"

    @property
    def has_failed(self) -> bool:
        """Whether a text is not the target's, or rounds do not equal their replay."""
        judged = [policy.judged for policy in self.policies if policy.judged is not None]
        return any(findings.lossless == FAILED or not findings.counts_equal_replay for findings in judged)

    @property
    def verdict(self) -> str:
        """What came out, a sentence a line."""
        return verdict_text(self.policies, self.won, self.ran.unit)

    @property
    def prediction(self) -> str:
        """How good the prediction was, in a line; empty where nothing was predicted."""
        return prediction_verdict(self.errors, None if self.won is None else self.won.first.policy)

    @property
    def all_in_sample(self) -> tuple[str, ...]:
        """Labels of policies that were fitted or chosen on the very texts that were run."""
        chosen = () if self.chosen is None else self.chosen.in_sample
        return tuple(policy.policy for policy in self.policies if policy.policy in {*self.in_sample, *chosen})

    def text(self) -> str:
        """Everything, as ``simlab confirm`` prints it: the verdict, tables, and what to know of them."""
        parts = [within_width("\n".join(filter(None, [self.verdict, self.prediction]))), within_width(self.heading)]
        if self.by is None:
            parts.append(confirm_table(self.policies))
        else:
            parts.append(confirm_blocks(self.slices, self.policies, self.by))
        parts += [within_width(same_texts_sentence(self.policies))]
        parts += [] if self.ran.batch == 1 else [machine_table(self.ran.speeds, self.ran.batch)]
        parts += [stage_table(self.policies), error_table(self.errors), within_width(agreement_text(self.order))]
        parts += [] if self.stale is None else [self.stale.text()]
        parts += [] if self.differences is None else [differences_text(self.differences)]
        parts += [
            self._notes(),
            in_sample_note(self.in_sample),
            self.chosen.note() if self.chosen is not None else "",
        ]
        return "\n\n".join(filter(None, parts))

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab confirm --json`` prints; see `simlab.traces.artefacts.confirmation`."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "simlab_version": self.simlab_version,
            "text_id": self.text_id,
            "draft_ids": self.draft_ids,
            "cost": self.prices.cost_id,
            "verdict": self.verdict,
            "prediction": self.prediction,
            "heading": self.heading,
            "prices": {
                "cost_id": self.prices.cost_id,
                "heading": self.prices.heading,
                "why_none": self.prices.no_latency_reason,
                "key_match": None if self.prices.cost_id is None else True,
            },
            "ran": self.ran.to_json(),
            "chosen": None if self.chosen is None else self.chosen.to_json(),
            "first": None if self.won is None else self.won.first.policy,
            "comparisons": [] if self.won is None else [comparison.row() for comparison in self.won.comparisons],
            "rank_agreement": self.order.value(),
            "stale": None if self.stale is None else self.stale.to_json(),
            "rows": self._rows(),
            "by": self.by,
            "slices": [policy.row() for policy in self.slices],
            "differences": list(self.differences or ()),
        }

    def _rows(self) -> list[dict[str, object]]:
        """Flat values of each policy: what was predicted, measured, judged and wrong."""
        errors = {error.policy_id: error.row() for error in self.errors}
        names: Sequence[str] = list(next(iter(errors.values()), {}))
        machine = {
            label: speed.row("measured_machine_tokens_per_s", digits=None) for label, speed in self.ran.speeds.items()
        }
        return [
            {
                **policy.row(),
                **errors.get(policy.predicted.policy_id, dict.fromkeys(names)),
                **machine.get(policy.policy, {}),
                "in_sample": policy.policy in self.all_in_sample,
            }
            for policy in self.policies
        ]

    def _notes(self) -> str:
        """What to know of the numbers, below the tables."""
        is_alone = self.ran.batch == 1
        num_groups = None if is_alone else self.ran.groups
        speedup = _OVER_FIXED if self.ran.machine["fixed_rows"] else SPEEDUP if is_alone else _OVER_BATCH
        notes = [] if is_alone else [served_note(self.ran.batch)]
        notes += [confirm_notes(self.policies, self.prices.no_latency_reason, speedup, num_groups)]
        notes += [ERROR_NOTES] if self.prediction else []
        notes += [within_width(self.unpriced)] if self.unpriced else []
        notes += [_STOPPED.format(units=f"{self.ran.unit}s")] if self.ran.ended == "interval" else []
        return "\n".join(notes)
