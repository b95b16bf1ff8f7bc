"""What it takes to say that replay is the runner, on any models: run, replay, compare, audit.

The runner decodes a prompt under a policy. Replaying its own rows on its own text must give its rounds,
without tolerance, round by round and in the engine. In float32 its rounds may also be held against a record of
the same prompt, made beforehand by one dense pass. And its text is audited: see
`simlab.real_runner.confirm.audit`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from made_up_heads import with_producers
from order_checks import check_columns
from random_adapter import random_adapter

from simlab.arrays import Ints
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.audit import TextLosses, Verdict, audit_text, measured_bound, verdict_of
from simlab.real_runner.confirm.record_comparison import RecordComparison, compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.traces.format.frames import SequenceRecord, TokenRows

DRAFT = "dflash"
PLAIN = "autoregressive"
POLICIES = parse_policies(["ar", "chain", "ddtree:budget=8/16/64"])
SEED = 0

CLOSE = 1e-3
"""Nats. A float32 run may exchange two nodes of a tree only where the record has them closer than this, and its
log-probabilities may be off the record's by no more."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Against:
    """A float32 run against the record of its prompt.

    Attributes:
        num_rounds: roots compared.
        num_unpaired: rounds at a root that only one of the two has.
        num_rows: drafted rows compared.
        largest: the largest difference of a candidate's log-probability.
        parting: where the text leaves the record's; empty: nowhere.
        parting_gap: by how much the record's token had won there.
        rounds: rounds that differ, in words; each with the gap of its nodes.
        round_gaps: of these; NaN where it cannot be told.
        rows: ranks that differ, in words.
    """

    num_rounds: int
    num_unpaired: int
    num_rows: int
    largest: float
    parting: str
    parting_gap: float
    rounds: tuple[str, ...]
    round_gaps: tuple[float, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """One text under one policy.

    Attributes:
        label: of the policy.
        num_drafted: over all rounds.
        inside: whether it ended inside an accepted path, so that no bonus token was committed.
        unequal: where replaying its own rows gives other rounds; empty: nowhere.
        engine: likewise of the engine, which replays many policies at once.
        others: place, token and loss wherever float32 chooses another token.
        against: None where there is nothing to compare with.
    """

    label: str
    text: tuple[int, ...]
    stop_reason: str
    num_rounds: int
    num_drafted: int
    num_accepted: int
    inside: bool
    unequal: str
    engine: str
    others: tuple[tuple[int, int, float], ...]
    against: Against | None


@dataclass(frozen=True)
class Checked:
    """One prompt under every policy, and by how much logits were off along its plain text."""

    prompt_id: str
    dataset: str
    turn: int
    bound: float
    runs: tuple[Ran, ...]

    @property
    def name(self) -> str:
        return f"{self.prompt_id}, turn {self.turn + 1}" if self.turn else self.prompt_id

    def run(self, label: str) -> Ran:
        return next(run for run in self.runs if run.label == label)

    def to_json(self) -> Json:
        return asdict(self)


def checked_from(found: Json) -> Checked:
    """What `Checked.to_json` gave, after a way through a file."""
    return Checked(**{**found, "runs": tuple(map(_ran_from, found["runs"]))})


def _ran_from(found: Json) -> Ran:
    against: Json | None = found["against"]
    lists = ("rounds", "round_gaps", "rows")
    there = None if against is None else Against(**{**against, **{name: tuple(against[name]) for name in lists}})
    others = tuple((place, token, loss) for place, token, loss in found["others"])
    return Ran(**{**found, "text": tuple(found["text"]), "others": others, "against": there})


def sampling_at(temperature: float) -> Sampling:
    return Sampling(temperature, 0, 1.0, SEED)


def as_loaded(models: Models) -> Models:
    """Models that run as they are."""
    return models


def check_prompt(
    models: Models,
    target32: Target,
    record: SequenceRecord,
    sampling: Sampling,
    max_new_tokens: int,
    against: bool,
    policies: Sequence[NamedPolicy] = tuple(POLICIES),
    on_policy: Callable[[str], object] = str,
    run_as: Callable[[Models], Models] = as_loaded,
) -> Checked:
    """Run one prompt under every policy, and hold each run against itself, float32 and maybe the record.

    ``on_policy`` is called with each label before its run, ``run_as`` makes models run as they are to be executed. Many
    policies write the same text, which is audited once.
    """
    if not models.channels:
        models = with_producers(models, [policy.policy for policy in policies])
    # A policy that says which nodes carry masks runs on a target that drafts for itself.
    adapted = run_as(replace(models, drafter=random_adapter(models.target, seed=1), channels={}))
    models = run_as(models)
    prompt, runs = record.prompt, []
    audits: dict[bytes, TextLosses] = {}
    for policy in policies:
        on_policy(policy.label)
        ran_on = models if policy.policy.needs.masked is None else adapted
        decoded = decode(ran_on, policy.policy, prompt, sampling, max_new_tokens)
        text = decoded.text.tobytes()
        if text not in audits:
            audits[text] = audit_text(target32, prompt, decoded.text, sampling)
        runs.append(_ran(policy, decoded, audits[text], record if against else None))
    plain = np.array(next(run for run in runs if run.label == PLAIN).text, np.int32)
    bound = measured_bound(models.target, target32, prompt, plain)
    return Checked(prompt.prompt_id, prompt.dataset, prompt.turn, bound, tuple(runs))


def _ran(policy: NamedPolicy, decoded: DecodedText, losses: TextLosses, record: SequenceRecord | None) -> Ran:
    unequal = first_unequal(policy.policy, decoded)
    totals = decoded.totals
    places = np.flatnonzero(losses.tokens != decoded.text)
    others = tuple((int(place), int(losses.tokens[place]), float(losses.losses[place])) for place in places)
    against = None
    if record is not None:
        gaps = None if record.tokens is None else record.tokens.decision_gap
        against = _against(compare_with_record(policy.policy, decoded, record.recorded(DRAFT), gaps))
    return Ran(
        policy.label,
        tuple(decoded.text.tolist()),
        decoded.stop_reason,
        totals.rounds,
        totals.drafted,
        totals.accepted,
        totals.clipped > 0,
        "" if unequal is None else str(unequal),
        "not asked"
        if unequal is not None
        else engine_unequal(policy.policy, with_true_ranks(own_sequence(decoded, policy.policy))),
        others,
        against,
    )


def engine_unequal(policy: AnyPolicy, recorded: RecordedSequence) -> str:
    """Where the engine's rounds on a text are not those of playing it round by round; empty: nowhere."""
    try:
        check_columns([policy], recorded)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def with_true_ranks(recorded: RecordedSequence) -> RecordedSequence:
    """The same text, and where its tokens stand in the rows, which the engine reads instead of building trees."""
    rows = recorded.rows
    if rows is None:
        return recorded
    ranks = np.full_like(rows.counts, -1)
    for t, marginals in enumerate(rows.rows()):
        for depth in range(1, min(marginals.depth, len(recorded.text) - 1 - t) + 1):
            ranks[t, depth - 1] = _rank(marginals.at(depth)[0], int(recorded.text[t + depth]))
    return replace(recorded, rows=replace(rows, true_ranks=ranks))


def _rank(ids: Ints, token: int) -> int:
    places = np.flatnonzero(ids == token)
    return int(places[0]) if places.size else -1


def _against(found: RecordComparison) -> Against:
    return Against(
        found.num_rounds,
        found.num_unpaired,
        found.num_rows,
        found.largest_size,
        "" if found.parting is None else found.parting["says"],
        0.0 if found.parting is None else found.parting["gap"],
        tuple(difference["says"] for difference in found.round_differences),
        tuple(difference["gap"] if difference["num_nodes"] else math.nan for difference in found.round_differences),
        tuple(difference["says"] for difference in found.row_differences),
    )


def verdict_on(
    checked: Checked, label: str, bound: float, stop_token_ids: Sequence[int], max_new_tokens: int
) -> Verdict:
    """The lossless verdict on one text; ``bound`` is the largest of some prompts."""
    run = checked.run(label)
    text, plain = (np.array(tokens, np.int32) for tokens in (run.text, checked.run(PLAIN).text))
    losses, tokens = np.zeros(len(text)), text.copy()
    for index, token, loss in run.others:
        losses[index], tokens[index] = loss, token
    return verdict_of(text, plain, TextLosses(losses, tokens), bound, stop_token_ids, max_new_tokens)


def faults_of(checked: Checked, bound: float, stop_token_ids: Sequence[int], max_new_tokens: int) -> list[str]:
    """Everything about a prompt that must not be."""
    faults = []
    for run in checked.runs:
        verdict = verdict_on(checked, run.label, bound, stop_token_ids, max_new_tokens)
        found = [verdict.fault] if verdict.fault else []
        found += [f"own rows: {run.unequal}"] if run.unequal else []
        found += [f"own rows, engine: {run.engine}"] if run.engine else []
        found += [] if run.against is None else _against_faults(run.against, bound)
        faults += [f"{checked.name}, {run.label}: {fault}" for fault in found]
    return faults


def _against_faults(found: Against, bound: float) -> list[str]:
    """Differences from the record that no closeness explains."""
    faults = []
    if found.parting and not found.parting_gap <= bound:
        faults.append(f"text against the record: {found.parting}")
    for gap, says in zip(found.round_gaps, found.rounds, strict=True):
        if not gap <= CLOSE:
            faults.append(f"against the record: {says}")
    if found.largest > CLOSE:
        faults.append(f"rows are off the record's by {found.largest:.3g}")
    if found.num_unpaired and not found.rounds:
        faults.append(f"{found.num_unpaired} rounds stand at other roots than in the record's replay")
    return faults


def cut(record: SequenceRecord, num_tokens: int) -> SequenceRecord:
    """The record that a lower limit of new tokens would have given."""
    if len(record.text) <= num_tokens:
        return record
    rows = record.tokens
    tokens = None if rows is None else TokenRows(**{name: getattr(rows, name)[:num_tokens] for name in _TOKEN_FIELDS})
    drafts = {}
    for name, draft in record.drafts.items():
        num = num_tokens - 1
        flat = int(draft.counts[:num].sum())
        columns = {key: getattr(draft, key)[: flat if key in ("ids", "log_probs") else num] for key in _DRAFT_FIELDS}
        depth = draft.counts.shape[1]
        within = np.arange(num)[:, None] + np.arange(1, depth + 1) < num_tokens
        drafts[name] = replace(draft, **{**columns, "valid": draft.valid[:num] & within})
    return replace(record, text=record.text[:num_tokens], stop_reason="length", tokens=tokens, drafts=drafts)


_TOKEN_FIELDS = tuple(TokenRows.__dataclass_fields__)
_DRAFT_FIELDS = (
    "context_length",
    "counts",
    "ids",
    "log_probs",
    "outside_log_mass",
    "entropy",
    "true_rank",
    "true_log_prob",
)
