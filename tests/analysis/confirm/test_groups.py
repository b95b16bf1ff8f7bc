"""Groups of texts that are served together: on tiny random models, against single texts and a plain-Python server."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import random_trees
from batch_runs import turns_of
from depth import some
from lossless_checks import assert_same_rounds

from simlab.cost import StageSeconds
from simlab.draft import Draft, Prompt
from simlab.errors import ModelError
from simlab.policies.composition import Composition, select_together
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.joint_budget import JointBudget
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.batch import ServedGroup, first_unequal_of_each, serve_group
from simlab.real_runner.confirm.groups import groups_of, of_groups, units_of
from simlab.real_runner.decoding import speculation
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedRound
from simlab.real_runner.execution import kv_buffers
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling
from simlab.traces.format.frames import SequenceRecord
from simlab.tree import DraftTree

GREEDY, WARM = Sampling(0.0, 0, 1.0, 0), Sampling(1.1, 6, 0.9, 3)
VOCAB_SIZE, MOST, BATCH = 12, 18, 3
POLICIES: tuple[AnyPolicy, ...] = (Autoregressive(), Chain(3), DDTree(7), JointBudget(9))


class SlowingClock:
    """Each look at it takes longer than the one before, so that no two rounds take equally long."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks**2)


def round_seconds(number: int) -> float:
    """Of a round of the batch, which looks five times."""
    return float((5 * number + 5) ** 2 - (5 * number + 1) ** 2)


def models_of(seed: int) -> Models:
    import torch

    return random_trees.random_models(random_trees.FAMILIES[seed % 2], seed, VOCAB_SIZE, torch.float32)


def prompts_of(seed: int, num: int) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [
        random_trees.prompt_of(generator.integers(VOCAB_SIZE, size=int(size)).tolist(), f"{seed}-{number}")
        for number, size in enumerate(generator.integers(1, 12, num))
    ]


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("policy", POLICIES, ids=["ar", "chain", "ddtree", "joint"])
@pytest.mark.parametrize("num", some([7, 2, 1]))
def test_a_group_is_served_as_the_replay_serves_it(policy: AnyPolicy, num: int, sampling: Sampling) -> None:
    for seed in some(range(3)):
        models, prompts = models_of(seed), prompts_of(seed, num)
        served = serve_group(models, policy, prompts, sampling, MOST, BATCH, SlowingClock())
        alone = [decode(models, policy, prompt, sampling, MOST) for prompt in prompts]
        assert [text.text.tolist() for text in served.texts] == [one.text.tolist() for one in alone]
        assert [text.stop_reason for text in served.texts] == [one.stop_reason for one in alone]
        if not isinstance(policy, JointBudget):
            for text, other in zip(served.texts, alone, strict=True):
                assert_same_rounds([ran.round for ran in text.rounds], [ran.round for ran in other.rounds])
            turns = turns_of([len(one.rounds) for one in alone], BATCH)
            assert [sorted(numbers) for numbers, _ in served.rounds] == turns
            for number, text in enumerate(served.texts):
                own = [round_seconds(this) for this, turn in enumerate(turns) if number in turn]
                assert [ran.seconds.total_s for ran in text.rounds] == own
        assert all(len(numbers) == BATCH for numbers, _ in served.rounds)
        assert served.total_s == sum(round_seconds(number) for number in range(len(served.rounds)))
        in_rounds = sum(ran.round.num_committed for one in served.came for ran in one.rounds)
        assert served.num_committed == in_rounds
        assert sum(len(one.rounds) for one in served.came) == BATCH * len(served.rounds)
        assert first_unequal_of_each(policy, served) == [None] * num


# Planted faults


def faults(served: ServedGroup, policy: AnyPolicy) -> list[str]:
    return [str(mismatch) for mismatch in first_unequal_of_each(policy, served) if mismatch is not None]


def with_text(served: ServedGroup, number: int, change: Callable[[DecodedRound], DecodedRound]) -> ServedGroup:
    """The rounds of one text are others."""
    texts = list(served.texts)
    texts[number] = replace(texts[number], rounds=tuple(map(change, texts[number].rounds)))
    return replace(served, texts=tuple(texts))


def long_group(policy: AnyPolicy, seed: int = 3) -> ServedGroup:
    found = serve_group(models_of(seed), policy, prompts_of(seed, 7), GREEDY, MOST, BATCH, SlowingClock())
    assert len(found.texts[1].rounds) > 1
    return found


@pytest.mark.parametrize("policy", POLICIES, ids=["ar", "chain", "ddtree", "joint"])
def test_mixed_up_seconds_and_neighbours_are_seen(policy: AnyPolicy) -> None:
    served = long_group(policy)
    assert faults(served, policy) == []
    shifted = with_text(served, 1, lambda ran: replace(ran, seconds=StageSeconds(verify_s=1.5)))
    assert len(faults(shifted, policy)) == 1
    assert "seconds 1.5 in the run" in faults(shifted, policy)[0]
    numbers, seconds = served.rounds[-1]
    wrong = (*numbers[1:], numbers[0] + 1), seconds
    assert any(
        "texts beside it" in fault for fault in faults(replace(served, rounds=(*served.rounds[:-1], wrong)), policy)
    )
    assert "rounds of the batch" in faults(replace(served, rounds=served.rounds[:-1]), policy)[0]
    emptier = replace(served, batch=BATCH + 1)
    assert faults(emptier, policy)


def test_a_joint_budget_that_is_shared_out_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = JointBudget(9)
    assert faults(long_group(policy), policy) == []

    def otherwise(shared: Composition, drafts: Sequence[Draft]) -> list[DraftTree]:
        """The first text is forgotten: what it would have had goes to the others."""
        first = select_together(shared, drafts[:1])[0]
        rest = select_together(shared, drafts[1:]) if drafts[1:] else []
        return [DraftTree(first.tokens[:1], first.parents[:1]) if rest else first, *rest]

    monkeypatch.setattr(speculation, "select_together", otherwise)
    assert any("tree" in fault or "root" in fault for fault in faults(long_group(policy), policy))


def test_the_row_of_another_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(self: kv_buffers.SequenceRows, row: int, last: int) -> None:
        self.lengths[row], self.lengths[last] = self.lengths[last], 0

    def differs() -> bool:
        for seed in range(4):
            models, prompts = models_of(seed), prompts_of(seed, 7)
            alone = [decode(models, DDTree(7), prompt, GREEDY, MOST).text.tolist() for prompt in prompts]
            try:
                found = serve_group(models, DDTree(7), prompts, GREEDY, MOST, BATCH)
            except (ModelError, RuntimeError, IndexError):
                return True
            if [text.text.tolist() for text in found.texts] != alone:
                return True
        return False

    assert not differs()
    monkeypatch.setattr(kv_buffers.SequenceRows, "drop", faulty)
    assert differs()


# Groups


def records(sizes: Sequence[int]) -> list[SequenceRecord]:
    """So many turns of each prompt."""
    text, ids = np.array([1, 2], np.int32), np.array([1], np.int32)
    prompts = [Prompt(f"p{number}", "made-up", turn, 0, ids) for number, num in enumerate(sizes) for turn in range(num)]
    return [
        SequenceRecord(index=index, prompt=prompt, seed=0, text=text, stop_reason="length")
        for index, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize(
    ("sizes", "batch", "found"),
    [
        ((1,) * 8, 2, [4, 4]),
        ((1,) * 9, 2, [4, 5]),
        ((1,) * 10, 2, [4, 4, 2]),
        ((3, 2, 2, 2), 2, [5, 4]),
        ((1, 1), 4, [2]),
        ((2, 2, 2), 1, [2, 2, 2]),
    ],
)
def test_groups_are_of_whole_prompts(sizes: tuple[int, ...], batch: int, found: list[int]) -> None:
    made = records(sizes)
    groups = groups_of(made, batch)
    assert [len(group) for group in groups] == found
    assert [record.index for group in groups for record in group] == list(range(len(made)))
    units = units_of(made, batch)
    for group in groups:
        assert len({units[record.index] for record in group}) == 1
    assert len(set(units.values())) == len(found)


def test_texts_are_read_in_one_pass_whatever_their_order() -> None:
    made = records((2, 2, 2, 1))
    groups = [tuple(made[index] for index in indices) for indices in ((0, 4, 1), (2, 3), (6, 5))]
    found = list(of_groups(groups, iter(made)))
    assert [[record.index for record in group] for group in found] == [[0, 4, 1], [2, 3], [6, 5]]
