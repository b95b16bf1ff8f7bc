"""Every kind of drafter and channel: its text is plain decoding's, its own rows replay, and a record has the same."""

import itertools
from collections import Counter

import pytest
import random_trees
from captured_rehearsals import num_repeated, rehearsed
from decoded_batches import decode_batch
from depth import THOROUGH, examples, some
from lossless_checks import check_rounds, check_text
from replay_is_the_runner import engine_unequal, with_true_ranks
from systems import CLOSE, GREEDY, MOST, SAMPLED, SYSTEMS, System, long_text, prompts_for, recorded_of

from simlab.draft import Prompt
from simlab.errors import SimlabError
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.gated import GatedAdapter
from simlab.sampling.choice import Sampling

FAMILIES_AND_SAMPLINGS = list(itertools.product(random_trees.FAMILIES, (GREEDY, SAMPLED)))
COMBINATIONS = [
    (name, *of_both)
    for number, name in enumerate(SYSTEMS)
    for index, of_both in enumerate(FAMILIES_AND_SAMPLINGS)
    if THOROUGH or index == number % 4
]
"""System, family and sampling; in a quick run systems take turns."""

IN_TURNS = [
    (name, sampling)
    for number, name in enumerate(SYSTEMS)
    for index, sampling in enumerate((GREEDY, SAMPLED))
    if THOROUGH or index == number % 2
]


def checked(
    system: System, models: Models, policy: AnyPolicy, prompt: Prompt, sampling: Sampling, plain: list[int]
) -> DecodedText:
    """What a policy writes: plain decoding's text, in rounds that replay to the same."""
    decoded = decode(models, policy, prompt, sampling, system.most)
    check_text(decoded, plain, models, system.most)
    check_rounds(decoded, policy)
    assert first_unequal(policy, decoded) is None
    return decoded


@pytest.mark.parametrize(("name", "family", "sampling"), COMBINATIONS)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(name: str, family: str, sampling: Sampling) -> None:
    system, seen = SYSTEMS[name], Counter[str]()
    for seed in range(examples(3, quick=2)):
        models = system.models(seed, family)
        for prompt in some(prompts_for(seed)):
            plain = random_trees.plain_text(models.target, prompt, sampling, system.most)
            for policy in system.policies(seed, family):
                decoded = checked(system, models, policy, prompt, sampling, plain)
                own = own_sequence(decoded) if decoded.rounds else None
                if own is not None and not isinstance(policy, RoutedPolicy):
                    assert engine_unequal(policy, with_true_ranks(own)) == ""
                seen.update(system.seen(decoded))
                seen["accepted"] += decoded.totals.accepted
    assert seen["accepted"] > 0
    assert system.wanted <= set(seen)


@pytest.mark.parametrize(("name", "sampling"), IN_TURNS)
def test_captured_passes_write_the_same_text_and_own_rows_replay(name: str, sampling: Sampling) -> None:
    """Rehearsed on a CPU; buffers stay from text to text and from policy to policy, as they do in a run.

    The first family's passes are fused. A quick run has one of the two, in turns, where tokens were accepted in it,
    and two policies: the others meet captured passes in turns where rounds are compared with a record.
    """
    system, accepted = SYSTEMS[name], 0
    pairs = list(enumerate(random_trees.FAMILIES))
    for seed, family in pairs[:: -1 if list(SYSTEMS).index(name) // 2 % 2 else 1]:
        if accepted and not THOROUGH:
            break
        plain_models = system.models(seed, family)
        models = rehearsed(plain_models, is_fused=seed == 0 or isinstance(plain_models.drafter, GatedAdapter))
        for prompt in some(prompts_for(seed)):
            plain = random_trees.plain_text(models.target, prompt, sampling, system.most)
            for policy in some(system.policies(seed, family), quick=2):
                accepted += checked(system, models, policy, prompt, sampling, plain).totals.accepted
        assert num_repeated(models) > 0
    assert accepted > 0


@pytest.mark.parametrize(("name", "sampling"), IN_TURNS)
def test_rounds_are_those_of_a_record(name: str, sampling: Sampling) -> None:
    """Whoever did not run for a while has read all of the text when it does; eager passes and captured ones in turn."""
    system = SYSTEMS[name]
    for seed in range(examples(3, quick=1)):
        models = system.models(seed, "qwen3")
        both = [models, rehearsed(models)]
        recorded = None
        for number, policy in enumerate(system.policies(seed, "qwen3")[: system.recorded]):
            decoded = long_text(both[number % 2], policy, sampling, seed, system.most)
            recorded = recorded or recorded_of(models, decoded, sampling)
            found = compare_with_record(policy, decoded, recorded)
            assert found.parting is None
            assert found.num_rows == sum(ran.marginals is not None for ran in decoded.rounds)
            assert found.num_channel_rows == sum(len(ran.channels) for ran in decoded.rounds)
            assert max(found.largest_size, found.largest_channel_size) <= CLOSE
            assert found.num_unpaired == 0
            assert all(difference["gap"] <= CLOSE for difference in found.round_differences)
            assert found.rounds_equal or not system.equal


@pytest.mark.parametrize("name", SYSTEMS)
def test_several_texts_at_a_time_are_refused(name: str) -> None:
    system = SYSTEMS[name]
    policy = system.policies(0, "qwen3")[-1]
    with pytest.raises(SimlabError, match="one text at a time"):
        decode_batch(system.models(0, "qwen3"), policy, prompts_for(1), GREEDY, MOST, 2)
