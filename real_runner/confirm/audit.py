"""The audit of a confirmation: every text that was decoded, held against float32, once."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.draft import Prompt
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog, FinishedRun, FinishedSequence
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.real_runner.confirm.stop import whole
from simlab.real_runner.decoding.decoded import parting_of
from simlab.real_runner.execution.executions import AUTO
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import dtype_of, within_memory
from simlab.real_runner.targets.hub_files import at_revision
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose_rows, gaps_of, gumbel, sequence_key
from simlab.traces.format.documents import Json, JsonFields

# The audit of a text: is every token what the target itself says, but for the last bits of arithmetic?
#
# The whole text goes through the target once, in float32. Each token is held against that pass's own
# choice, made with the same noise and the same filters. Where they differ, the loss says how wrong the
# logits must have been; how wrong they can be is measured.
#
# Without top-k and top-p a token that was not chosen is explained by an error as large as the gap by which it lost.
# With one of them a small error has more ways: it lets a token in that stood just outside, or puts the winner out that
# stood just inside. So `least_error` asks the question of errors directly: how far must the differences between logits
# be off, each by at most the same amount, before the token can be the choice?


_ROWS_PER_PASS = 128
_TOKENS_PER_PIECE = 9
_PASS_SIZES = (9, 1, 33, 257, 17, 65, 129)
_NUM_COMPARED = 16
_SAFETY = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class TextLosses:
    """What a float32 pass says of the tokens of a text.

    Attributes:
        losses: float64 ``[T]``, by how much the difference between two logits must at least be off
            for the token to be the choice: 0 if it is the choice, or tied with it. Without top-k and
            top-p this is the least raise of its own logit with which it would have been chosen.
        tokens: int32 ``[T]``, the choices of the pass.
    """

    losses: Doubles
    tokens: Ints


@torch.inference_mode()
def audit_text(target32: Target, prompt: Prompt, text: Ints, sampling: Sampling) -> TextLosses:
    """Hold every token of a text against the choice of one teacher-forced pass.

    Args:
        target32: the target in float32.
        prompt: what the text answers; names the noise too.
        text: int32 ``[T]``.
        sampling: with which the text was made.
    """
    key, start = sequence_key(sampling, prompt), len(prompt.token_ids)
    states = target32.states(_ids(prompt, text[:-1]))[0, start - 1 :]
    losses, tokens = np.zeros(len(text)), np.empty(len(text), np.int32)
    for first in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(first, first + _ROWS_PER_PASS)
        logits = target32.rows(target32.logits(states[rows]))
        positions = np.arange(start + first, start + first + len(logits), dtype=np.int64)
        losses[rows], tokens[rows] = _token_losses(logits, text[rows], sampling, key, positions)
    return TextLosses(losses, tokens)


def _token_losses(logits: Floats, text: Ints, sampling: Sampling, key: int, positions: Longs) -> tuple[Doubles, Ints]:
    """Losses and choices of some rows ``[R, V]``."""
    keys = np.full(len(text), key, np.uint64)
    tokens = choose_rows(logits, sampling, keys, positions).tokens
    losses = np.zeros(len(text))
    others = np.flatnonzero(tokens != text)
    gaps = gaps_of(logits[others], text[others], sampling, keys[others], positions[others])
    is_filtered = sampling.temperature > 0 and (sampling.top_k > 0 or sampling.top_p < 1)
    for row, gap in zip(others, gaps, strict=True):
        losses[row] = -gap
        if is_filtered and gap < 0:
            losses[row] = least_error(logits[row], int(text[row]), sampling, key, int(positions[row]))
    return losses, tokens


@torch.inference_mode()
def measured_bound(target: Target, target32: Target, prompt: Prompt, text: Ints) -> float:
    """How much a difference between two logits may be off in ``target``; no loss may be larger.

    Measured at every token of a text: the 16 tokens that float32 finds most probable, and the one
    that follows, each against the first. Twice the largest error is given, since it is a difference of two
    such that decides between two tokens; and at least one float32 step of the largest logit.
    Take the largest over some texts of plain decoding. Passes here are ordinary ones, also of a target that is run in
    passes of one fixed shape or in captured ones.

    Args:
        target: as it was loaded, through a cache and in passes of the sizes that trees have.
        target32: the same in float32, in one pass over everything.
        prompt: what the text answers.
        text: int32 ``[T]``.

    Returns:
        In units of a logit.
    """
    whole = target32.states(_ids(prompt, text[:-1]))[0, len(prompt.token_ids) - 1 :]
    short = _states_in_pieces(target, prompt, text[:-1])
    bound = 0.0
    for first in range(0, len(text), _ROWS_PER_PASS):
        rows = slice(first, first + _ROWS_PER_PASS)
        logits, reference = target.rows(target.logits(short[rows])), target32.rows(target32.logits(whole[rows]))
        error = max(map(_gap_error, logits, reference, text[rows].tolist()))
        bound = max(bound, _SAFETY * error, _float32_step(reference))
    return bound


def _float32_step(logits: Floats) -> float:
    """No smaller difference can be told from none."""
    largest = np.abs(logits).max(initial=0.0, where=np.isfinite(logits))
    return float(np.spacing(np.float32(largest)))


def _gap_error(logits: Floats, reference: Floats, following: int) -> float:
    """The largest error of a gap to the most probable token, in one row ``[V]``."""
    ids = np.append(np.argsort(-reference, kind="stable")[:_NUM_COMPARED], following)
    ids = ids[np.isfinite(reference[ids]) & np.isfinite(logits[ids])]
    differences = logits[ids].astype(np.float64) - reference[ids]
    return float(np.abs(differences - differences[0]).max())


def _states_in_pieces(target: Target, prompt: Prompt, text: Ints) -> Tensor:
    """``[T + 1, H]``, the states that follow a prompt and each token of a text, through a cache.

    Kernels add in another order in passes of another size, so the passes are, in turn, as large as those of plain
    decoding and of small and large trees. A few tokens of the text stand at the beginning of each; what fills it up
    is seen by none of them, and forgotten.
    """
    cache = BufferCache(target, len(prompt.token_ids) + len(text) + max(_PASS_SIZES))
    parts = [target.states(_ids(prompt, text[:0]), cache)[0, -1:]]
    sizes, first = cycle(_PASS_SIZES), 0
    while first < len(text):
        size, start = next(sizes), cache.length
        piece = text[first : first + min(size, _TOKENS_PER_PIECE)]
        filled = np.resize(piece, max(len(piece), min(size, target.longest_context - start)))
        parts.append(target.states(torch.from_numpy(filled.astype(np.int64))[None], cache)[0, : len(piece)])
        cache.shorten(start + len(piece))
        first += len(piece)
    return torch.cat(parts)


def _ids(prompt: Prompt, text: Ints) -> Tensor:
    return torch.from_numpy(np.concatenate([prompt.token_ids, text]).astype(np.int64))[None]


_NUM_HALVINGS = 60


def least_error(logits: Floats, token: int, sampling: Sampling, key: int, position: int) -> float:
    """The least error that may explain a token.

    Never more than it took: if logits whose pairwise differences are off by at most ``e`` made the
    token the choice, the result is at most ``e``. It may be less, since whether each token gets in or
    out is asked separately.

    Args:
        logits: float32 ``[V]``, raw.
        token: emitted; another one is the choice of these logits.
        sampling: its temperature is above 0.
        key: of the text's noise.
        position: absolute, of the token.

    Returns:
        In units of a logit; inf for a token of logit -inf.
    """
    if logits[token] == -np.inf:
        return float(np.inf)
    filtered = _filtered(logits, sampling)
    own = float(logits[token])
    values = logits.astype(np.float64) + sampling.temperature * gumbel(key, position, len(logits))
    stronger = np.flatnonzero(values > values[token])
    rivals, leads = logits[stronger].astype(np.float64), values[stronger] - values[token]

    def explains(error: float) -> bool:
        unbeaten = leads > error
        return filtered.may_be_in(own, error) and bool(filtered.may_be_out(rivals[unbeaten], error).all())

    low, high = 0.0, max(float(logits.max()) - own, float(leads.max(initial=0.0)))
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class _Filtered:
    """A law in target order, and what top-k and top-p do to it.

    Attributes:
        falling: float64 ``[V]``, the logits, largest first.
        ahead: float64 ``[k + 1]``, mass of the first n tokens of those that top-k leaves.
        behind: float64 ``[k + 1]``, mass of the others of these.
        temperature: above 0.
        top_p: 1 keeps all.
    """

    falling: Doubles
    ahead: Doubles
    behind: Doubles
    temperature: float
    top_p: float

    @property
    def num_kept(self) -> int:
        """How many tokens top-k leaves."""
        return len(self.ahead) - 1

    def may_be_in(self, logit: float, error: float) -> bool:
        """Whether an error can let a token of this logit in."""
        num = int(np.searchsorted(-self.falling, -(logit + error), side="left"))
        if num >= self.num_kept:
            return False
        if self.top_p == 1:
            return True
        # Those surely before it weigh least, against all others, when the error is in its favour.
        before = self.ahead[num] * np.exp(-error / self.temperature)
        return bool(before * (1 - self.top_p) <= self.behind[num] * self.top_p)

    def may_be_out(self, logits: Doubles, error: float) -> Bools:
        """Whether an error can put tokens of these logits, float64 ``[R]``, out; bool ``[R]``."""
        num = np.searchsorted(-self.falling, -(logits - error), side="right")
        cut = num > self.num_kept
        if self.top_p == 1:
            return cut
        num = np.minimum(num, self.num_kept)
        own = np.exp((logits - self.falling[0]) / self.temperature)
        rest = (self.behind[num] + own) * np.exp(-error / self.temperature)
        out: Bools = cut | ((self.ahead[num] - own) * (1 - self.top_p) >= rest * self.top_p)
        return out


def _filtered(logits: Floats, sampling: Sampling) -> _Filtered:
    falling = -np.sort(-logits.astype(np.float64))
    num_kept = min(sampling.top_k, len(logits)) if sampling.top_k > 0 else len(logits)
    mass = np.exp((falling[:num_kept] - falling[0]) / sampling.temperature)
    ahead = np.concatenate([[0.0], np.cumsum(mass)])
    behind = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
    return _Filtered(falling, ahead, behind, sampling.temperature, sampling.top_p)


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
    index = int(beyond[0])
    return f"token {index} of the text loses by {losses[index]:.3g} against float32, and the bound is {bound:.3g}"


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
    """Audit every text of whole prompts in the log and measure the bound, but for what the log holds already.

    The target is loaded once more in float32 and eager, on the device of the audit, unless the run is that itself.
    """
    texts, bound_texts = _unaudited(setup, log), _unbounded(setup, log)
    if not texts and not bound_texts:
        return
    bar = tqdm(total=len(texts) + len(bound_texts), desc="audit", unit="text", smoothing=0, disable=None)
    with within_memory(_elsewhere(setup.options)), bar:
        bar.set_postfix_str("the float32 target is loaded, then every text read once")
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
    totals = {policy.policy_id: Verdict("exact", bound=bound) for policy in setup.policies}
    counted: set[tuple[str, int, str, str]] = set()
    for sequence in whole(setup.units, finished(log)):
        plain = _plain(setup, sequence)
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
    if setup.audits_itself:
        return target
    where = options.device if options.audit_device is None else options.audit_device
    is_same = options.audit_device in (None, options.device)
    is_spread = where == AUTO or (is_same and options.device_map is not None)
    name, device_map = at_revision(target.name, target.revision), AUTO if is_spread else None
    target32 = load_target(name, dtype_of("float32"), options.device if where == AUTO else where, device_map)
    return replace(target32, stop_token_ids=target.stop_token_ids)


def _unaudited(setup: ConfirmSetup, log: ConfirmLog) -> list[tuple[int, FinishedRun]]:
    """Each text that was decoded and not yet audited, once."""
    done = {_place(entry) for entry in log.entries(AUDIT)}
    texts = {
        (sequence.index, run.text_digest): run
        for sequence in whole(setup.units, finished(log))
        for run in sequence.runs
    }
    return [(key[0], run) for key, run in texts.items() if key not in done]


def _unbounded(setup: ConfirmSetup, log: ConfirmLog) -> list[tuple[int, FinishedRun]]:
    """Texts of plain decoding on which the bound is still to be measured."""
    done = {_place(entry)[0] for entry in log.entries(BOUND)}
    first = [sequence for sequence in whole(setup.units, finished(log)) if sequence.repeat == 0]
    return [(sequence.index, _plain(setup, sequence)) for sequence in first if sequence.index not in done]


def _plain(setup: ConfirmSetup, sequence: FinishedSequence) -> FinishedRun:
    return next(run for run in sequence.runs if run.policy_id == setup.plain_id)


def _place(entry: JsonFields) -> tuple[int, str]:
    return entry.integer("sequence"), entry.text("text_digest")


def _audit_entry(index: int, run: FinishedRun, audited: TextLosses) -> Json:
    """The places at which float32 chooses another token, that token, and the loss; null is infinite."""
    positions = np.flatnonzero(audited.tokens != _array(run))
    losses = [float(loss) if np.isfinite(loss) else None for loss in audited.losses[positions]]
    others = [
        {"place": int(position), "token": int(audited.tokens[position]), "loss": loss}
        for position, loss in zip(positions, losses, strict=True)
    ]
    return {"sequence": index, "text_digest": run.text_digest, "others": others}


def _losses(run: FinishedRun, entry: JsonFields) -> TextLosses:
    losses, tokens = np.zeros(len(run.text)), _array(run)
    for other in entry.objects("others"):
        index = other.integer("place")
        tokens[index] = other.integer("token")
        losses[index] = np.inf if other.values.get("loss") is None else other.number("loss")
    return TextLosses(losses, tokens)


def _array(run: FinishedRun) -> Ints:
    return np.array(run.text, np.int32)
