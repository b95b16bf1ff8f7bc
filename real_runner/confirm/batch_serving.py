"""A group of texts served to the end of its last one, as `simlab.policies.engine.lock_step` replays it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.policies.composition import check_batch
from simlab.policies.engine.lock_step import with_filler_requests
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.batched_decode import decoded_of
from simlab.real_runner.decoding.batched_speculation import BatchedSpeculation
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.decoded import Decoded
from simlab.real_runner.decoding.running_text import RunningText
from simlab.real_runner.decoding.timer import Clock
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling


@dataclass(frozen=True, slots=True)
class BatchRound:
    """One round of all texts of a batch.

    Attributes:
        numbers: of the texts in it; texts are numbered as they come.
        seconds: that all of them waited.
    """

    numbers: tuple[int, ...]
    seconds: StageSeconds


@dataclass(frozen=True, slots=True, eq=False)
class ServedGroup:
    """Texts that were served together.

    Attributes:
        batch: texts at a time.
        texts: those of the group, in the order in which they came.
        company: those that came after them, once more from the first, so that the batch stayed full; the last of them
            were left where they were when the group ended.
        rounds: of the batch.
    """

    batch: int
    texts: tuple[Decoded, ...]
    company: tuple[Decoded, ...]
    rounds: tuple[BatchRound, ...]

    @property
    def came(self) -> tuple[Decoded, ...]:
        """All texts, by their numbers."""
        return *self.texts, *self.company

    @property
    def total_s(self) -> float:
        """Seconds of all rounds of the batch."""
        return sum(one.seconds.total_s for one in self.rounds)

    @property
    def num_committed(self) -> int:
        """Tokens that all texts together wrote in them, company's too."""
        return sum(one.totals.committed for one in self.came)


def serve_group(
    models: Models,
    policy: AnyPolicy,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    max_new_tokens: int,
    batch: int,
    clock: Clock = time.perf_counter,
) -> ServedGroup:
    """Decode texts, ``batch`` of them at a time, until each has ended.

    When a text ends the next takes its place, and behind the last one the first come once more, uncounted: every round
    is one of ``batch`` texts. A text of one token has no round and takes no place.

    Args:
        models: a target and a drafter that fits it.
        policy: of each text, or of the batch.
        prompts: at least one.
        sampling: how the target chooses.
        max_new_tokens: of each text.
        batch: texts at a time.
        clock: see `simlab.real_runner.decoding.timer`.

    Raises:
        MissingChannelError: the policy reads a channel, and the runner makes none.
        ModelError: a text may outrun the target's positions, or logits are no law.
        PolicyError: the policy chose a tree that it may not, or has no prices for as many texts.
    """
    check_batch(policy, batch)
    for prompt in prompts:
        check_runs(models, policy, prompt, max_new_tokens)
    longest = max(len(prompt.token_ids) for prompt in prompts)
    served = BatchedSpeculation(models, policy, sampling, max_new_tokens, clock, batch, longest)
    queue, ended, rounds = with_filler_requests(len(prompts)), dict[int, RunningText](), list[BatchRound]()
    while not set(range(len(prompts))) <= ended.keys():
        if served.has_place:
            while served.has_place:
                served.add(prompts[next(queue)])
        else:
            numbers = tuple(one.number for one in served.running)
            rounds.append(BatchRound(numbers, served.round()[0].seconds))
        ended |= {one.number: one for one in served.take_ended()}
    came = ended | {one.number: one for one in served.running}
    decoded = [decoded_of(models, policy, came[number]) for number in sorted(came)]
    return ServedGroup(batch, tuple(decoded[: len(prompts)]), tuple(decoded[len(prompts) :]), tuple(rounds))
