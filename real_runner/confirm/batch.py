"""A group of texts served to the end of its last one, and whether its rounds are those of its replay.

`simlab.policies.engine.lock_step` replays it. Under a policy of the batch what a text drafts depends on the texts
beside it. So all rows of a round are put before the policy once more, together, and each text is then held against
the trees that come out.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from simlab.cost import StageSeconds
from simlab.draft import Draft, Prompt
from simlab.policies.composition import (
    Composition,
    check_batch,
    check_runs_together,
    select_together,
    shared_composition,
)
from simlab.policies.engine.lock_step import with_filler_requests
from simlab.policy import AnyPolicy, Needs, Outcome
from simlab.real_runner.decoding.decode import check_runs, no_check
from simlab.real_runner.decoding.decoded import DecodedText, RunningText
from simlab.real_runner.decoding.drafting import check_passes
from simlab.real_runner.decoding.own_rows import ReplayMismatch, first_unequal, own_sequence
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import draft_source
from simlab.tree import DraftTree


@dataclass(frozen=True, slots=True, eq=False)
class ServedGroup:
    """Texts that were served together.

    Attributes:
        batch: texts at a time.
        texts: those of the group, in the order in which they came.
        company: those that came after them, once more from the first, so that the batch stayed full; the last of them
            were left where they were when the group ended.
        rounds: of the batch, the numbers of the texts in each, and the seconds that all of them waited; not kept where
            one text runs at a time.
    """

    batch: int
    texts: tuple[DecodedText, ...]
    company: tuple[DecodedText, ...]
    rounds: tuple[tuple[tuple[int, ...], StageSeconds], ...]

    @property
    def came(self) -> tuple[DecodedText, ...]:
        """All texts, by their numbers."""
        return *self.texts, *self.company

    @property
    def total_s(self) -> float:
        """Seconds of all rounds of the batch."""
        return sum(seconds.total_s for _, seconds in self.rounds)

    @property
    def num_committed(self) -> int:
        """Tokens that all texts together wrote in them, company's too."""
        return sum(text.totals.committed for text in self.came)


def serve_group(
    models: Models,
    policy: AnyPolicy,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    max_new_tokens: int,
    batch: int,
    clock: Clock = time.perf_counter,
    check: Callable[[], None] = no_check,
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
        clock: see `simlab.real_runner.decoding.plain`.
        check: called before each round, outside of its time; what it raises ends the group.
    """
    check_batch(policy, batch)
    check_runs_together(policy, batch)
    check_passes(policy, models.execution, batch)
    for prompt in prompts:
        check_runs(models, policy, prompt, max_new_tokens)
    longest = max(len(prompt.token_ids) for prompt in prompts)
    served = Speculation(models, policy, sampling, max_new_tokens, clock, batch, longest)
    queue, ended = with_filler_requests(len(prompts)), dict[int, RunningText]()
    rounds: list[tuple[tuple[int, ...], StageSeconds]] = []
    while not set(range(len(prompts))) <= ended.keys():
        check()
        if served.has_place:
            while served.has_place:
                served.add(prompts[next(queue)])
        else:
            numbers = tuple(text.number for text in served.running)
            rounds.append((numbers, served.round()[0].seconds))
        ended |= {ended_text.number: ended_text for ended_text in served.take_ended()}
    came = ended | {text.number: text for text in served.running}
    decoded = [came[number].decoded() for number in sorted(came)]
    return ServedGroup(batch, tuple(decoded[: len(prompts)]), tuple(decoded[len(prompts) :]), tuple(rounds))


Trees = Mapping[int, DraftTree]
"""What a text drafts, by the tokens before the root."""

_SECONDS = "seconds"


@dataclass(frozen=True, slots=True, eq=False)
class GivenTrees:
    """A policy that has chosen already, for one text.

    Attributes:
        needs: of the policy of the batch; the same for ``budget``.
        trees: what it chose for the text, by the tokens before each root.
    """

    needs: Needs
    budget: int
    trees: Trees = field(repr=False)

    def start(self, prompt: Prompt) -> None:
        """Remember nothing: the trees are chosen already."""

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        """The tree of that root.

        Raises:
            KeyError: none was chosen there.
        """
        return self.trees[draft.context_length]

    def update(self, state: None, outcome: Outcome) -> None:
        """Remember nothing of what the target accepted."""


def first_unequal_of_each(policy: AnyPolicy, served: ServedGroup) -> list[ReplayMismatch | None]:
    """Where each text of a group leaves the replay of the rows that were drafted; None where it does not.

    Besides `simlab.real_runner.decoding.own_rows.first_unequal`, the texts of each round of the batch must be those
    whose turn it was, and each must have waited for the whole of it.

    Args:
        policy: the one that ran.
        served: the group.
    """
    if served.batch == 1:
        return [first_unequal(policy, text) for text in served.texts]
    policies: Sequence[AnyPolicy] = [policy] * len(served.texts)
    shared, misplaced = shared_composition(policy), _first_misplaced(served)
    strangers = [mismatch for mismatch in misplaced.values() if mismatch.what != _SECONDS]
    if shared is not None and strangers:
        # What a text would have drafted beside other texts is not known.
        return [misplaced.get(number, strangers[0]) for number in range(len(served.texts))]
    if shared is not None:
        policies = [GivenTrees(policy.needs, policy.budget, trees) for trees in _trees_of_run(shared, served)]
    return [
        misplaced[number] if number in misplaced else _unequal(of_text, served, number)
        for number, of_text in enumerate(policies)
    ]


def policies_on_record(policy: AnyPolicy, texts: Sequence[RecordedSequence], batch: int) -> Sequence[AnyPolicy]:
    """A policy for each recorded text of a group that has there the rounds which the text has in the batch.

    Args:
        policy: of each text, or of the batch.
        texts: of the group, with the drafter's rows.
        batch: texts at a time.
    """
    shared = shared_composition(policy)
    if shared is None or batch == 1:
        return [policy] * len(texts)
    return [GivenTrees(policy.needs, policy.budget, trees) for trees in _trees_on_record(shared, texts, batch)]


def _unequal(policy: AnyPolicy, served: ServedGroup, number: int) -> ReplayMismatch | None:
    text = served.texts[number]
    try:
        return first_unequal(policy, text)
    except KeyError as error:
        return ReplayMismatch(int(error.args[0]) - len(text.prompt.token_ids), "root", ran="none", replayed="one")


def _turns(num_texts: int, batch: int, num_rounds: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The texts of each round of the batch, in the order in which they came, from the number of rounds of each."""
    waiting, left = deque(range(len(num_rounds))), list(num_rounds)
    running: list[int] = []
    while any(left[number] for number in range(num_texts)):
        while len(running) < batch and waiting:
            number = waiting.popleft()
            running += [number] if left[number] else []
        yield tuple(running)
        for number in running:
            left[number] -= 1
        running = [number for number in running if left[number]]


def _first_misplaced(served: ServedGroup) -> dict[int, ReplayMismatch]:
    """Texts in a round of the batch that was not theirs, or whose seconds are not those of the whole round."""
    came, misplaced, done = served.came, dict[int, ReplayMismatch](), [0] * len(served.came)
    turns = list(_turns(len(served.texts), served.batch, [len(text.rounds) for text in came]))
    if len(turns) != len(served.rounds):
        unequal = ReplayMismatch(0, "rounds of the batch", ran=str(len(served.rounds)), replayed=str(len(turns)))
        return dict.fromkeys(range(len(served.texts)), unequal)
    for turn, (numbers, batch_seconds) in zip(turns, served.rounds, strict=True):
        ran = tuple(sorted(numbers))
        for number in turn:
            ran_round = came[number].rounds[done[number]]
            done[number] += 1
            if ran != turn or len(turn) != served.batch:
                misplaced.setdefault(
                    number,
                    ReplayMismatch(ran_round.round.position, "texts beside it", ran=str(ran), replayed=str(turn)),
                )
            seconds, waited = ran_round.seconds.total_s, batch_seconds.total_s
            if seconds != waited:
                misplaced.setdefault(
                    number, ReplayMismatch(ran_round.round.position, _SECONDS, ran=str(seconds), replayed=str(waited))
                )
    return misplaced


def _trees_of_run(shared: Composition, served: ServedGroup) -> list[dict[int, DraftTree]]:
    """What the policy chooses for each text of the group in each round that ran, from the rows that were drafted."""
    came, done = served.came, [0] * len(served.came)
    sources = [draft_source(shared.needs, own_sequence(text)) if text.rounds else None for text in came]
    trees: list[dict[int, DraftTree]] = [{} for _ in came]
    for texts_of_round, _ in served.rounds:
        numbers, drafts = sorted(texts_of_round), []
        for number in numbers:
            source = sources[number]
            assert source is not None
            drafts.append(source(came[number].rounds[done[number]].round.position))
            done[number] += 1
        for number, draft, tree in zip(numbers, drafts, select_together(shared, drafts), strict=True):
            trees[number][draft.context_length] = tree
    return trees[: len(served.texts)]


def _trees_on_record(shared: Composition, texts: Sequence[RecordedSequence], batch: int) -> list[dict[int, DraftTree]]:
    """What the policy chooses for each text as it comes in a batch on the record, all its rounds."""
    sources = [draft_source(shared.needs, text) for text in texts]
    trees: list[dict[int, DraftTree]] = [{} for _ in texts]
    queue, num_came, running = with_filler_requests(len(texts)), 0, list[tuple[int, int, int]]()
    left = {number for number, text in enumerate(texts) if len(text.text) > 1}
    while left:
        while len(running) < batch:
            text = next(queue)
            if len(texts[text].text) > 1:
                running.append((num_came, text, 0))
            num_came += 1
        drafts = [sources[text](t) for _, text, t in running]
        after = []
        for (number, text, t), draft, tree in zip(running, drafts, select_together(shared, drafts), strict=True):
            if number == text:
                trees[text][draft.context_length] = tree
            index = t + len(tree.accepted_path(texts[text].text[t + 1 :])) + 1
            if index < len(texts[text].text) - 1:
                after.append((number, text, index))
            elif number == text:
                left.discard(text)
        running = after
    return trees
