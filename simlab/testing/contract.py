"""The contract of a policy, for the policies here and for anybody's own.

    from simlab.testing import check_policy

    check_policy(MyPolicy(budget=16))

It needs nothing but simlab: texts and candidates are made up, many of them with equal
log-probabilities, and the same ones every time.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from simlab.channels import Branches, Channel, Pool, ScoredTokens, Transitions
from simlab.draft import Draft, Marginals
from simlab.policy import AnyPolicy, Outcome, modelled_s
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import draft_source, rounds, staged
from simlab.testing.random_texts import random_text_for
from simlab.tree import DraftTree


def check_policy(policy: AnyPolicy, draws: int = 50, seed: int = 0) -> None:
    """Whether a policy keeps the promises of `Policy`, on made-up texts.

    Its trees hang below the root they were given, stay within its budget, and hold only tokens
    that the drafter proposed at their depth, among the ranks it declares, or that a channel which
    it declares scored there; the same draft and memory give the same tree, and ask for the same
    branches; the draft is left as it was; ranks that are not declared, or that a trace would not
    keep, change nothing; and every token of the text is committed once.

    Args:
        policy: the policy, with its settings.
        draws: how many texts to try.
        seed: chooses the texts.

    Raises:
        AssertionError: it does not; the sentence says which promise is broken.
        ValueError: it needs a channel of a kind that cannot be made up.
    """
    generator = np.random.default_rng(seed)
    widest = policy.budget if policy.needs.top_k is None else policy.needs.top_k
    for _ in range(draws):
        most_kept = int(generator.choice([3, 12, widest + 8]))
        check_sequence(policy, random_text_for(policy, generator, most_kept))


def check_sequence(policy: AnyPolicy, recorded: RecordedSequence) -> None:
    """Whether a policy keeps the promises of `Policy` on one recorded text; see `check_policy`."""
    needs = policy.needs
    if type(policy.budget) is not int or policy.budget < 0:
        _break(policy, f"has the budget {policy.budget!r}; it must be a whole number that is not negative")
    steps = _walk(policy, recorded, draft_source(needs, recorded), copying=False)
    again = _walk(policy, recorded, draft_source(needs, recorded), copying=True)
    if not _same(steps, again):
        _break(policy, "chose another tree for the same draft: it is random, or it changes its memory in place")
    if needs.draft:
        _check_reach(policy, recorded, steps)
    played = list(rounds(policy, recorded))
    committed = [token for _, outcome in steps for token in outcome.committed]
    paths = [outcome.path for _, outcome in steps]
    if [round_.path for round_ in played] != paths or committed != recorded.text[1:].tolist():
        _break(policy, "did not commit each token of the text exactly once")


_Step: TypeAlias = tuple[DraftTree, Outcome]
"""What one round of the check came to."""


def _walk(
    policy: AnyPolicy, recorded: RecordedSequence, draft_at: Callable[[int], Draft], copying: bool
) -> list[_Step]:
    """The rounds of a policy; with ``copying`` it never sees the same object twice."""
    keep: Callable[[Any], Any] = deepcopy if copying else _unchanged
    text, last = recorded.text, len(recorded.text) - 1
    state = policy.start(recorded.prompt)
    steps: list[_Step] = []
    t = 0
    while t < last:
        draft = _staged(policy, draft_at(t), keep(state))
        tree = _checked_tree(policy, draft, keep(state))
        if copying and not _equal(tree, _checked_tree(policy, deepcopy(draft), keep(state))):
            _break(policy, "chose another tree when it was asked twice")
        path = tree.accepted_path(text[t + 1 :])
        committed = tuple(text[t + 1 : t + 2 + len(path)].tolist())
        seconds = modelled_s(policy, len(recorded.prompt.token_ids) + t, tree.num_drafted)
        t += len(committed)
        outcome = Outcome(path, committed, t == last, seconds)
        state = policy.update(keep(state), outcome)
        steps.append((tree, outcome))
    return steps


def _unchanged(value: Any) -> Any:  # noqa: ANN401 - a policy's memory is anything
    return value


def _staged(policy: AnyPolicy, draft: Draft, state: Any) -> Draft:  # noqa: ANN401
    """What the policy is given of a draft, of branches those that it asks for; asked twice it wants the same."""
    try:
        given = staged(policy, draft, state)
        again = staged(policy, deepcopy(draft), deepcopy(state))
    except Exception as error:
        raise AssertionError(f"{policy!r} asked for branches that it cannot have: {error}") from error
    if not _untouched(given, again):
        _break(policy, "asked for other branches when it was asked twice")
    return given


def _checked_tree(policy: AnyPolicy, draft: Draft, state: Any) -> DraftTree:  # noqa: ANN401
    given = deepcopy(draft)
    try:
        tree = policy.select(given, state)
    except Exception as error:
        raise AssertionError(f"{policy!r} raised {type(error).__name__} on a proper draft: {error}") from error
    if not isinstance(tree, DraftTree):
        _break(policy, f"returned a {type(tree).__name__}, not a DraftTree")
    if not _untouched(draft, given):
        _break(policy, "changed the draft it was given")
    if tree.tokens[0] != draft.root_token:
        _break(policy, f"put its tree below token {tree.tokens[0]}; the root is {draft.root_token}")
    if tree.num_drafted > policy.budget:
        _break(policy, f"drafted {tree.num_drafted} tokens; its budget is {policy.budget}")
    _check_tokens(policy, draft, tree)
    return tree


def _check_tokens(policy: AnyPolicy, draft: Draft, tree: DraftTree) -> None:
    if draft.marginals is None and not draft.channels:
        if tree.num_drafted:
            _break(policy, "drafted tokens although it declares that it needs no drafter")
        return
    channels = [channel for channel in draft.channels.values() if isinstance(channel, ScoredTokens)]
    depths = [tokens.depth for tokens in (draft.marginals, *channels) if tokens is not None]
    deepest = max(depths, default=0)
    scored = [_scored_nodes(channel, tree) for channel in channels]
    for node, depth in list(enumerate(tree.depths().tolist()))[1:]:
        token = int(tree.tokens[node])
        if depth > deepest:
            _break(policy, f"drafted {depth} tokens deep; the drafter proposed {deepest}")
        marginals = draft.marginals
        is_kept = marginals is not None and depth <= marginals.depth and token in marginals.at(depth)[0]
        if not is_kept and not any(node in nodes for nodes in scored):
            _break(
                policy, f"drafted token {token} at depth {depth}, which is not among the candidates it may read there"
            )


def _scored_nodes(channel: ScoredTokens, tree: DraftTree) -> set[int]:
    """The nodes of a tree that a channel scored where they stand."""
    if isinstance(channel, Transitions):
        return _nodes_of_transitions(channel, tree)
    if isinstance(channel, Branches):
        return _nodes_of_branches(channel, tree)
    numbers, nodes = {0: 0}, set()
    indices = {(int(parent), int(token)): at + 1 for at, (parent, token) in enumerate(_edges(channel))}
    for node, parent in list(enumerate(tree.parents.tolist()))[1:]:
        index = indices.get((numbers.get(parent, -1), int(tree.tokens[node])))
        if index is not None:
            numbers[node] = index
            nodes.add(node)
    return nodes


def _nodes_of_branches(channel: Branches, tree: DraftTree) -> set[int]:
    """Nodes whose token some branch has at their depth; that it stands behind the chain is the policy's own affair."""
    at_depth: dict[int, set[int]] = {}
    row = 0
    for length in channel.lengths.tolist():
        for depth in range(length + 1, channel.depth + 1):
            at_depth.setdefault(depth, set()).update(channel.ids[row].tolist())
            row += 1
    depths = tree.depths().tolist()
    return {node for node, token in enumerate(tree.tokens.tolist()) if node and token in at_depth.get(depths[node], ())}


def _edges(pool: Pool) -> Iterator[tuple[int, int]]:
    return zip(pool.parents.tolist(), pool.tokens.tolist(), strict=True)


def _nodes_of_transitions(channel: Transitions, tree: DraftTree) -> set[int]:
    ends = np.cumsum(channel.num_rows)
    nodes = set()
    for node, depth in list(enumerate(tree.depths().tolist()))[1:]:
        if depth > channel.depth:
            continue
        rows = range(int(ends[depth - 1] - channel.num_rows[depth - 1]), int(ends[depth - 1]))
        above = tree.tokens[tree.parents[node]]
        own = [row for row in rows if depth == 1 or channel.previous[row - 1] == above]
        if any(tree.tokens[node] in channel.ids[row] for row in own):
            nodes.add(node)
    return nodes


def _check_reach(policy: AnyPolicy, recorded: RecordedSequence, steps: list[_Step]) -> None:
    """Whether trees are the same with more ranks than are declared, and with no more than a trace would keep."""
    whole = draft_source(replace(policy.needs, top_k=None), recorded)
    if policy.needs.top_k is not None:
        if not _same(steps, _walk_or_none(policy, recorded, whole)):
            _break(policy, f"reads beyond the first {policy.needs.top_k} ranks, which it declares as its top_k")
        return

    def narrow(t: int) -> Draft:
        draft = whole(t)
        return replace(draft, marginals=_as_recorded(draft.drafted(), policy.budget))

    if not _same(steps, _walk_or_none(policy, recorded, narrow)):
        _break(policy, "reads candidates that a trace would not keep for its budget; declare a top_k")


def _walk_or_none(
    policy: AnyPolicy, recorded: RecordedSequence, draft_at: Callable[[int], Draft]
) -> list[_Step] | None:
    try:
        return _walk(policy, recorded, draft_at, copying=False)
    except AssertionError:
        return None


def _as_recorded(marginals: Marginals, budget: int) -> Marginals:
    """The candidates of the ``budget`` most probable paths at each depth, and of paths as probable."""
    rows = [marginals.at(depth)[1].astype(np.float64) for depth in range(1, marginals.depth + 1)]
    level, scores = np.zeros(1), []
    for row in rows:
        level = -np.sort(-np.add.outer(level, row).ravel())[:budget]
        scores.append(level)
    best = -np.sort(-np.concatenate(scores))[:budget]
    firsts = np.cumsum([0.0, *(row[0] if len(row) else -np.inf for row in rows)])
    used = [max(1, int(np.sum(first + row >= best[-1]))) for first, row in zip(firsts, rows, strict=False)]
    lists = [marginals.at(depth + 1) for depth in range(marginals.depth)]
    ids = np.concatenate([ids[:num] for (ids, _), num in zip(lists, used, strict=True)])
    log_probs = np.concatenate([values[:num] for (_, values), num in zip(lists, used, strict=True)])
    counts = [min(num, len(ids)) for (ids, _), num in zip(lists, used, strict=True)]
    return Marginals(ids, log_probs, np.cumsum([0, *counts]).astype(np.int32), marginals.entropies)


def _untouched(draft: Draft, other: Draft) -> bool:
    if not np.array_equal(draft.committed, other.committed):
        return False
    if any(not _same_arrays(draft.channels[name], other.channels.get(name)) for name in draft.channels):
        return False
    if draft.marginals is None or other.marginals is None:
        return draft.marginals is other.marginals
    return _same_arrays(draft.marginals, other.marginals)


def _same_arrays(first: Marginals | Channel, second: Marginals | Channel | None) -> bool:
    names = type(first).__slots__
    return type(first) is type(second) and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in names
    )


def _equal(tree: DraftTree, other: DraftTree) -> bool:
    return np.array_equal(tree.tokens, other.tokens) and np.array_equal(tree.parents, other.parents)


def _same(steps: list[_Step], others: list[_Step] | None) -> bool:
    if others is None or len(steps) != len(others):
        return False
    return all(_equal(tree, other) for (tree, _), (other, _) in zip(steps, others, strict=True))


def _break(policy: AnyPolicy, sentence: str) -> NoReturn:
    raise AssertionError(f"{policy!r} {sentence}")
