"""The runner's own rows replay to its own rounds, and whatever is changed in either is found."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
from depth import some
from systems import GREEDY
from tiny_recordings import rendered_prompts

from simlab.draft import Draft, Marginals, Prompt
from simlab.policies.named.entropy_width import EntropyWidth
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy, Needs, Outcome, Stateless
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedRound, DecodedText
from simlab.real_runner.decoding.own_rows import ReplayMismatch, first_unequal, own_sequence
from simlab.real_runner.models import Models, load_models
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

SPECS = ["ar", "chain", "chain:length=2", "ddtree:budget=4/9/40"]
POLICIES = {named.label: named.policy for named in parse_policies(SPECS)}
TREE = POLICIES["ddtree:budget=9"]
MAX_NEW_TOKENS = 40


@pytest.fixture(scope="module", params=some(["llama-float32", "llama-bfloat16", "qwen3-float32"]))
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Models:
    family, dtype = request.param.split("-")
    target, drafter = tiny_models.make_pair(tmp_path_factory.mktemp("models"), family)
    return load_models(str(target), str(drafter), dtype, "cpu")


@pytest.fixture(scope="module")
def prompts(models: Models, tmp_path_factory: pytest.TempPathFactory) -> list[Prompt]:
    return rendered_prompts(models.target, tmp_path_factory.mktemp("prompts"), 6)


@pytest.fixture(scope="module")
def run(models: Models, prompts: list[Prompt]) -> DecodedText:
    """A run of `TREE` with some accepted tokens in the middle of its rounds."""
    runs = [decode(models, TREE, prompt, GREEDY, MAX_NEW_TOKENS) for prompt in prompts]
    return next(run for run in runs if len(run.rounds) > 6 and any(ran.round.path for ran in run.rounds[2:-2]))


def test_texts_of_one_and_two_tokens(models: Models, prompts: list[Prompt]) -> None:
    for label, policy in POLICIES.items():
        text, two = (decode(models, policy, prompts[2], GREEDY, limit) for limit in (1, 2))
        assert (len(text.rounds), len(two.rounds), len(two.text)) == (0, 1, 2), label
        assert first_unequal(policy, text) is None
        assert first_unequal(policy, two) is None


def with_round(decoded: DecodedText, place: int, change: Callable[[DecodedRound], DecodedRound]) -> DecodedText:
    rounds = list(decoded.rounds)
    rounds[place] = change(rounds[place])
    return replace(decoded, rounds=tuple(rounds))


def middle(decoded: DecodedText) -> int:
    """A round that accepted something, with others around it."""
    return next(index for index, ran in enumerate(decoded.rounds) if index >= 2 and ran.round.path)


def swapped(marginals: Marginals, here: int, there: int) -> Marginals:
    ids = marginals.ids.copy()
    ids[[here, there]] = ids[[there, here]]
    return replace(marginals, ids=ids)


def in_round(**changes: object) -> Callable[[DecodedText], DecodedText]:
    return lambda decoded: with_round(
        decoded,
        middle(decoded),
        lambda ran: replace(ran, round=replace(ran.round, **changes)),  # type: ignore[arg-type]
    )


def swap_candidates(decoded: DecodedText) -> DecodedText:
    def swap(ran: DecodedRound) -> DecodedRound:
        assert ran.marginals is not None
        return replace(ran, marginals=swapped(ran.marginals, 0, 1))

    return with_round(decoded, middle(decoded), swap)


def drop_round(decoded: DecodedText) -> DecodedText:
    index = middle(decoded)
    return replace(decoded, rounds=decoded.rounds[:index] + decoded.rounds[index + 1 :])


def drop_last_round(decoded: DecodedText) -> DecodedText:
    return replace(decoded, rounds=decoded.rounds[:-1])


def repeat_last_round(decoded: DecodedText) -> DecodedText:
    return replace(decoded, rounds=(*decoded.rounds, decoded.rounds[-1]))


def begin_behind_the_end(decoded: DecodedText) -> DecodedText:
    """One more round, from the last token."""
    last = decoded.rounds[-1]
    behind = replace(last, round=replace(last.round, position=len(decoded.text) - 1))
    return replace(decoded, rounds=(*decoded.rounds, behind))


def shorten_path(decoded: DecodedText) -> DecodedText:
    """One accepted node fewer, though as many tokens were committed."""
    path = decoded.rounds[middle(decoded)].round.path
    return in_round(path=path[:-1])(decoded)


def move_leaf(decoded: DecodedText) -> DecodedText:
    """The same tokens on another parent."""
    tree = decoded.rounds[middle(decoded)].round.tree
    parents = tree.parents.copy()
    parents[-1] = len(parents) - 2 if parents[-1] != len(parents) - 2 else len(parents) - 3
    return in_round(tree=DraftTree(tree.tokens, parents))(decoded)


FAULTS: dict[str, tuple[Callable[[DecodedText], DecodedText], str]] = {
    "swapped candidates": (swap_candidates, "tree tokens"),
    "dropped round": (drop_round, "root"),
    "dropped last round": (drop_last_round, "end of the text"),
    "repeated last round": (repeat_last_round, "root"),
    "round behind the end": (begin_behind_the_end, "root"),
    "shortened path": (shorten_path, "accepted path"),
    "moved leaf": (move_leaf, "tree parents"),
    "one token more": (in_round(num_committed=1), ""),
    "clipped": (in_round(clipped=True), "clipping"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(run: DecodedText, fault: str) -> None:
    assert first_unequal(TREE, run) is None
    change, what = FAULTS[fault]
    found = first_unequal(TREE, change(run))
    assert found is not None
    assert what in found.what
    assert found.ran != found.replayed
    assert str(found).startswith(f"round at {found.position}: ")


def test_what_ran_is_told_from_its_replay(run: DecodedText) -> None:
    found = first_unequal(TREE, in_round(clipped=True)(run))
    assert str(found).endswith(": clipping True in the run, False in its replay")
    found = first_unequal(TREE, drop_last_round(run))
    end, whole = run.rounds[-1].round.position, len(run.text) - 1
    assert str(found) == f"round at {end}: end of the text {end} in the run, {whole} in its replay"
    found = first_unequal(TREE, repeat_last_round(run))
    assert str(found) == f"round at {whole}: root {end} in the run, none in its replay"
    long = ReplayMismatch(3, "tree tokens", ran="1" * 70, replayed="2" * 70)
    assert str(long) == f"round at 3: tree tokens {'1' * 60} ... in the run, {'2' * 60} ... in its replay"


def test_rows_of_two_depths_are_refused(run: DecodedText) -> None:
    shallow = Marginals(np.array([1], np.int32), np.zeros(1, np.float32), np.array([0, 1], np.int32))
    with pytest.raises(ValueError, match="rows of one depth"):
        own_sequence(with_round(run, 0, lambda ran: replace(ran, marginals=shallow)))


class DoublesAfterSuccess(Stateless):
    """Remembers, and puts its nodes in an order of its own: each depth reversed."""

    needs, budget = Needs(top_k=3), 24

    def start(self, prompt: Prompt) -> int:  # type: ignore[override]
        return 1

    def select(self, draft: Draft, state: int) -> DraftTree:
        tokens, parents = [draft.root_token], [-1]
        best = 0
        for depth in range(1, min(state, draft.drafted().depth) + 1):
            ids = draft.drafted().at(depth)[0].tolist()[::-1]
            parents += [best] * len(ids)
            tokens += ids
            best = len(tokens) - 1
        return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32))

    def update(self, state: int, outcome: Outcome) -> int:  # type: ignore[override]
        return min(2 * state, 8) if outcome.num_accepted else 1


OTHERS: dict[str, AnyPolicy] = {"reads entropies": EntropyWidth(budget=12, top_k=8), "remembers": DoublesAfterSuccess()}


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.9, 30, 0.95, 5)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", [*some(list(POLICIES)), *OTHERS])
def test_own_rows_give_the_own_rounds(models: Models, prompts: list[Prompt], name: str, sampling: Sampling) -> None:
    """A live round works out the entropies that a policy reads; its rows keep them for the replay."""
    policy = (POLICIES | OTHERS)[name]
    for prompt in prompts:
        decoded = decode(models, policy, prompt, sampling, MAX_NEW_TOKENS)
        assert first_unequal(policy, decoded) is None
        if name == "reads entropies":
            assert all(ran.marginals is not None and ran.marginals.entropies is not None for ran in decoded.rounds)
