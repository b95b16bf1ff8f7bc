"""The audit of a confirmation: every text that was decoded, held against float32, once."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from tqdm import tqdm

from simlab.arrays import Doubles, Ints
from simlab.real_runner.confirm.audit.float32_audit import TextLosses, audit_text, measured_bound
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog, FinishedRun, FinishedSequence
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.real_runner.decoding.decoded import parting_of
from simlab.real_runner.execution.executions import AUTO, EAGER
from simlab.real_runner.models import dtype_of, within_memory
from simlab.real_runner.targets.hub_files import at_revision
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.traces.format.documents import Json, JsonFields

# The verdict on a text: the target's own, but for ties, or not.


Kind = Literal["exact", "ties", "FAILED"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a text, or the texts of a policy, are the target's own. Verdicts of texts add up.

    Attributes:
        kind: ``exact``: every token is the float32 choice, and the text is plain decoding's; ``ties``:
            some are not, all within the bound; ``FAILED``: one is beyond it, or the text does not end
            where it must.
        num_ties: tokens that are not the float32 choice, and texts that part from plain decoding's at
            a token that is.
        worst_gap: the largest loss, in units of a logit.
        bound: what a loss may be.
        fault: of a failure, what was found first.

    >>> str(Verdict("exact") + Verdict("ties", num_ties=2, worst_gap=0.01, bound=0.1))
    'ties(2)'
    """

    kind: Kind
    num_ties: int = 0
    worst_gap: float = 0.0
    bound: float = 0.0
    fault: str = ""

    def __post_init__(self) -> None:
        fits = {"exact": self.num_ties == 0, "ties": self.num_ties > 0, "FAILED": True}
        if not fits[self.kind] or bool(self.fault) != (self.kind == "FAILED"):
            raise ValueError(f"ties come with the kind 'ties', a fault with 'FAILED'; got {self!r}")

    def __add__(self, other: "Verdict") -> "Verdict":
        num_ties = self.num_ties + other.num_ties
        return _worst_verdict(
            num_ties,
            max(self.worst_gap, other.worst_gap),
            max(self.bound, other.bound),
            self.fault or other.fault,
        )

    def __str__(self) -> str:
        return f"ties({self.num_ties})" if self.kind == "ties" else self.kind


def _worst_verdict(num_ties: int, worst_gap: float, bound: float, fault: str) -> Verdict:
    kind: Kind = "FAILED" if fault else "ties" if num_ties else "exact"
    return Verdict(kind, num_ties, worst_gap, bound, fault)


def verdict_of(
    text: Ints,
    plain_text: Ints,
    audited: TextLosses,
    bound: float,
    stop_token_ids: Collection[int],
    max_new_tokens: int,
) -> Verdict:
    """The verdict on one text.

    Args:
        text: int32 ``[T]``.
        plain_text: int32, of plain decoding of the same prompt in the same dtype; for plain decoding
            itself its own.
        audited: of ``text``.
        bound: from `measured_bound`, the largest of some texts.
        stop_token_ids: of the target.
        max_new_tokens: the limit under which the text was made.
    """
    if not bound >= 0:
        raise ValueError(f"a bound is a number of at least 0; got {bound}")
    parting = parting_of(text, plain_text)
    num_ties = int((audited.tokens != text).sum())
    # Up to where they part the two texts meet the same law, so a text that keeps to the choice of
    # float32 there has been left by plain decoding.
    if parting is not None and (parting == len(text) or audited.tokens[parting] == text[parting]):
        num_ties += 1
    fault = _loss_fault(audited.losses, bound) or _end_fault(text, stop_token_ids, max_new_tokens)
    return _worst_verdict(num_ties, float(audited.losses.max(initial=0.0)), bound, fault)


def _loss_fault(losses: Doubles, bound: float) -> str:
    beyond = np.flatnonzero(losses > bound)
    if not len(beyond):
        return ""
    place = int(beyond[0])
    return f"token {place} of the text loses by {losses[place]:.3g} against float32, and the bound is {bound:.3g}"


def _end_fault(text: Ints, stop_token_ids: Collection[int], max_new_tokens: int) -> str:
    if len(text) > max_new_tokens:
        return f"the text has {len(text)} tokens, and the limit is {max_new_tokens}"
    stops = np.flatnonzero(np.isin(text, list(stop_token_ids)))
    if len(stops) and stops[0] < len(text) - 1:
        return f"the text runs past its stop token, which is token {stops[0]} of {len(text)}"
    if not len(stops) and len(text) < max_new_tokens:
        return f"the text ends after {len(text)} tokens without a stop token; the limit is {max_new_tokens}"
    return ""


AUDIT, BOUND = "audit", "bound"
"""The kinds of the log's entries."""


def audit(setup: ConfirmSetup, log: ConfirmLog) -> None:
    """Audit every text in the log and measure the bound, but for what the log holds already.

    The target is loaded once more in float32 and eager, on the device of the audit, unless the run is that itself.
    """
    texts, bound_texts = _unaudited(log), _unbounded(setup, log)
    if not texts and not bound_texts:
        return
    bar = tqdm(total=len(texts) + len(bound_texts), desc="audit", unit="text", smoothing=0)
    with within_memory(_elsewhere(setup.options)), bar:
        bar.set_postfix_str("float32")
        target32 = _in_float32(setup)
        records = {record.index: record for record in setup.records}
        for index, run in texts:
            losses = audit_text(target32, records[index].prompt, _array(run), setup.sampling)
            log.append(AUDIT, _audit_entry(index, run, losses))
            bar.update(1)
        bar.set_postfix_str("how far logits are off")
        for index, run in bound_texts:
            bound = measured_bound(setup.models.target, target32, records[index].prompt, _array(run))
            log.append(BOUND, {"sequence": index, "text_digest": run.text_digest, "bound": bound})
            bar.update(1)


def verdicts(setup: ConfirmSetup, log: ConfirmLog) -> dict[str, Verdict]:
    """The verdict on each policy by its id, over all sequences; a text that repeats counts once."""
    bound = bound_of(log)
    losses = {_place(entry): entry for entry in log.entries(AUDIT)}
    totals = {one.policy_id: Verdict("exact", bound=bound) for one in setup.policies}
    counted: set[tuple[str, int, str, str]] = set()
    for sequence in finished(log):
        plain = next(run for run in sequence.runs if run.policy_id == setup.plain_id)
        for run in sequence.runs:
            once = (run.policy_id, sequence.index, run.text_digest, plain.text_digest)
            if once not in counted:
                counted.add(once)
                audited = _losses(run, losses[sequence.index, run.text_digest])
                totals[run.policy_id] += _verdict(setup, sequence.index, run, plain, audited, bound)
    return totals


def bound_of(log: ConfirmLog) -> float:
    """The largest bound that was measured."""
    return max(entry.number("bound") for entry in log.entries(BOUND))


def _verdict(
    setup: ConfirmSetup, index: int, run: FinishedRun, plain: FinishedRun, audited: TextLosses, bound: float
) -> Verdict:
    """On one text; a fault names its prompt."""
    manifest = setup.manifest
    verdict = verdict_of(_array(run), _array(plain), audited, bound, manifest.stop_token_ids, manifest.max_new_tokens)
    if not verdict.fault:
        return verdict
    prompt = next(record.prompt for record in setup.records if record.index == index)
    return replace(verdict, fault=f"prompt {prompt.prompt_id!r}, turn {prompt.turn}: {verdict.fault}")


def _elsewhere(options: ConfirmOptions) -> str:
    """What to do where the float32 target does not fit beside the models."""
    now = "" if options.time_limit_s is None else " --time-limit 0"
    return (
        f"what was run is kept: for the audit give --resume{now} --audit-device cpu, or --audit-device auto, which "
        "spreads the float32 target over GPUs and memory"
    )


def _in_float32(setup: ConfirmSetup) -> Target:
    target, options = setup.models.target, setup.options
    where = options.device if options.audit_device is None else options.audit_device
    is_same = options.audit_device in (None, options.device)
    if options.dtype == "float32" and options.execution == EAGER and is_same:
        return target
    is_spread = where == AUTO or (is_same and options.device_map is not None)
    name, device_map = at_revision(target.name, target.revision), AUTO if is_spread else None
    target32 = load_target(name, dtype_of("float32"), options.device if where == AUTO else where, device_map)
    return replace(target32, stop_token_ids=target.stop_token_ids)


def _unaudited(log: ConfirmLog) -> list[tuple[int, FinishedRun]]:
    """Each text that was decoded and not yet audited, once."""
    done = {_place(entry) for entry in log.entries(AUDIT)}
    texts = {(one.index, run.text_digest): run for one in finished(log) for run in one.runs}
    return [(place[0], run) for place, run in texts.items() if place not in done]


def _unbounded(setup: ConfirmSetup, log: ConfirmLog) -> list[tuple[int, FinishedRun]]:
    """Texts of plain decoding on which the bound is still to be measured."""
    done = {_place(entry)[0] for entry in log.entries(BOUND)}
    first = [one for one in finished(log) if one.repeat == 0]
    return [(one.index, _plain(setup, one)) for one in first if one.index not in done]


def _plain(setup: ConfirmSetup, sequence: FinishedSequence) -> FinishedRun:
    return next(run for run in sequence.runs if run.policy_id == setup.plain_id)


def _place(entry: JsonFields) -> tuple[int, str]:
    return entry.integer("sequence"), entry.text("text_digest")


def _audit_entry(index: int, run: FinishedRun, audited: TextLosses) -> Json:
    """The places at which float32 chooses another token, that token, and the loss; null is infinite."""
    places = np.flatnonzero(audited.tokens != _array(run))
    losses = [float(loss) if np.isfinite(loss) else None for loss in audited.losses[places]]
    others = [
        {"place": int(place), "token": int(audited.tokens[place]), "loss": loss}
        for place, loss in zip(places, losses, strict=True)
    ]
    return {"sequence": index, "text_digest": run.text_digest, "others": others}


def _losses(run: FinishedRun, entry: JsonFields) -> TextLosses:
    losses, tokens = np.zeros(len(run.text)), _array(run)
    for other in entry.objects("others"):
        place = other.integer("place")
        tokens[place] = other.integer("token")
        losses[place] = np.inf if other.values.get("loss") is None else other.number("loss")
    return TextLosses(losses, tokens)


def _array(run: FinishedRun) -> Ints:
    return np.array(run.text, np.int32)
