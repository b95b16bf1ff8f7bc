"""Rounds as JSON values that an implementation in another engine can be tested against.

docs/reference/conformance.md says what each key holds, and names a reader that checks them without simlab.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from simlab.arrays import Floats, Longs
from simlab.channels import BRANCHES, POOL, TARGET, TRANSITIONS, Branches, Features, Pool, ScoredTokens, TargetLaw
from simlab.cost import CHANNEL, CostTable
from simlab.draft import Draft, Marginals
from simlab.errors import PolicyError
from simlab.grid import STEPS_PER_NAT
from simlab.policies.composition import order_of, rule_of
from simlab.policies.costs.curves import costs_at, round_costs
from simlab.policy import AnyPolicy, Outcome, modelled_s, routes_of
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import Round, as_declared, draft_source, rounds, staged

FORMAT = "simlab-conformance"
FORMAT_VERSION = 1
"""The format of conformance files that this simlab writes."""

Json = dict[str, object]


def conformance_rounds(policy: AnyPolicy, recorded: RecordedSequence) -> Iterator[Json]:
    """What each round of a policy on a recorded text was given, and what it came to."""
    draft_at, prompt_length = draft_source(policy.needs, recorded), len(recorded.prompt.token_ids)
    drafted = 0 if recorded.rows is None else recorded.rows.counts.shape[1]
    last = len(recorded.text) - 1
    state = policy.start(recorded.prompt)
    for played in rounds(policy, recorded):
        whole = staged(policy, draft_at(played.position), state)
        served = policy if played.route is None else routes_of(policy)[played.route]
        draft = whole if played.route is None else as_declared(whole, served.needs)
        depth = max(drafted, *(channel.depth for channel in _scored(draft).values()), 0)
        follows = recorded.text[played.position + 1 : played.position + depth + 2].tolist()
        text_ends = played.position + len(follows) == last
        given = _given(served, draft) | _predicted(whole) | _memory(policy, state)
        if played.route is not None:
            given["route"] = played.route
        yield given | _tree(played, prompt_length) | _verified(played, prompt_length, follows, text_ends)
        committed = tuple(follows[: played.num_committed])
        seconds = modelled_s(policy, prompt_length + played.position, played.num_drafted)
        state = policy.update(state, Outcome(played.path, committed, played.position + len(committed) == last, seconds))


def stages_of(policy: AnyPolicy) -> tuple[str, ...]:
    """The stages whose seconds a policy weighs; none for a policy without prices."""
    priced = _prices(policy)
    return () if priced is None else tuple(stage for stage in priced[1] if stage != CHANNEL or policy.needs.made)


def _given(policy: AnyPolicy, draft: Draft) -> Json:
    """Everything that the choice of a tree hangs on, but for the policy's memory."""
    marginals = draft.marginals
    # A tree of n nodes that is best-first on the marginals has no rank beyond the first n at any depth.
    width = policy.budget if policy.needs.top_k is None else policy.needs.top_k
    rows = [] if marginals is None else [_row(marginals, depth, width) for depth in range(1, marginals.depth + 1)]
    given: Json = {
        "context_length": draft.context_length,
        "root_token": draft.root_token,
        "ids": [ids for ids, _ in rows],
        "log_probs": [log_probs for _, log_probs in rows],
    }
    if scored := _scored(draft):
        given["channels"] = {name: _channel(channel, draft.root_token) for name, channel in scored.items()}
    if policy.needs.entropies:
        given["entropies"] = draft.entropies().tolist()
    if _reads_text(policy):
        given["text_before"] = draft.committed[:-1].tolist()
    priced = _prices(policy)
    if priced is not None:
        cost, stages, most = priced
        seconds = np.empty(most + 1)
        costs_at(round_costs(cost, stages, most), draft.context_length, seconds)
        given["seconds"] = seconds.tolist()
    return given


def _row(marginals: Marginals, depth: int, width: int) -> tuple[list[int], list[int]]:
    """Ids of a depth, and their log-probabilities in grid steps."""
    ids, log_probs = marginals.at(depth)
    return ids[:width].tolist(), _steps(log_probs[:width]).tolist()


def _predicted(draft: Draft) -> Json:
    """The entropy of the target's law that the root was chosen from, and features, where the policy reads them."""
    law = draft.channels.get(TARGET)
    values: Json = {"target_entropy": law.entropy} if isinstance(law, TargetLaw) else {}
    features = {
        name: _steps(channel.values).tolist()
        for name, channel in draft.channels.items()
        if isinstance(channel, Features)
    }
    return values | ({"features": features} if features else {})


def _scored(draft: Draft) -> dict[str, ScoredTokens]:
    """The channels that trees may be made of."""
    return {name: channel for name, channel in draft.channels.items() if isinstance(channel, ScoredTokens)}


def _channel(channel: ScoredTokens, root_token: int) -> Json:
    """What a channel says at one root: a pool as it is, transitions depth by depth, branches one by one."""
    if isinstance(channel, Pool):
        return {
            "kind": POOL,
            "tokens": channel.tokens.tolist(),
            "parents": channel.parents.tolist(),
            "log_probs": _steps(channel.log_probs).tolist(),
            "expanded": channel.expanded.tolist(),
        }
    if isinstance(channel, Branches):
        ends = np.cumsum(channel.depth - channel.lengths)
        parts = [slice(end - rows, end) for end, rows in zip(ends, channel.depth - channel.lengths, strict=True)]
        log_probs = _steps(channel.log_probs)
        return {
            "kind": BRANCHES,
            "depth": channel.depth,
            "lengths": channel.lengths.tolist(),
            "ids": [channel.ids[part].tolist() for part in parts],
            "log_probs": [log_probs[part].tolist() for part in parts],
        }
    above, ends = np.concatenate([[root_token], channel.previous]), np.cumsum(channel.num_rows)[:-1]
    by_row = {"previous": above, "ids": channel.ids, "log_probs": _steps(channel.log_probs)}
    return {
        "kind": TRANSITIONS,
        **{name: [part.tolist() for part in np.split(rows, ends)] for name, rows in by_row.items()},
    }


def _steps(numbers: Floats) -> Longs:
    """Log-probabilities or features in grid steps, int64."""
    return np.rint(numbers.astype(np.float64) * STEPS_PER_NAT).astype(np.int64)


def _tree(round_: Round, prompt_length: int) -> Json:
    tree, root_position = round_.tree, prompt_length + round_.position
    mask = tree.ancestor_mask().astype(np.uint8) + ord("0")
    return {
        "tokens": tree.tokens.tolist(),
        "parents": tree.parents.tolist(),
        "positions": (root_position + tree.depths()).tolist(),
        "mask": [row.tobytes().decode() for row in mask],
    }


def _verified(round_: Round, prompt_length: int, follows: list[int], text_ends: bool) -> Json:
    """What the target says, and what is kept of the pass."""
    committed = follows[: round_.num_committed]
    ended = text_ends and len(committed) == len(follows)
    return {
        "follows": follows,
        "text_ends": text_ends,
        "path": list(round_.path),
        "committed": committed,
        "kept_rows": [prompt_length + round_.position + node for node in (0, *round_.path)],
        "next_root": None if ended else committed[-1],
    }


def _prices(policy: AnyPolicy) -> tuple[CostTable, tuple[str, ...], int] | None:
    """The prices of a policy's budget rule, the stages that count, and the most tokens it asks for and they reach."""
    rule = rule_of(policy)
    cost, stages = getattr(rule, "cost", None), getattr(rule, "stages", ())
    if rule is None or not isinstance(cost, CostTable):
        return None
    return cost, tuple(stages), min(rule.most, cost.most_drafted)


def _reads_text(policy: AnyPolicy) -> bool:
    """Whether the tokens before the root may matter; to a class that is not known here they may."""
    chosen = order_of(policy) or policy
    if not type(chosen).__module__.startswith("simlab.policies."):
        return True
    # A lattice order has its correction in its shape.
    shape = getattr(chosen, "shape", chosen)
    return bool(getattr(getattr(shape, "edge", None), "is_corrected", False))


def _memory(policy: AnyPolicy, state: object) -> Json:
    """What a policy remembers before the round; nothing for most."""
    return {} if state is None else {"memory": _json_of(policy, state)}


def _json_of(policy: AnyPolicy, value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _json_of(policy, fields)
    if isinstance(value, Mapping):
        return {str(key): _json_of(policy, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_json_of(policy, item) for item in value]
    raise PolicyError(
        f"{policy!r} remembers a {type(value).__name__}, which cannot be written as JSON; "
        "give it a memory of numbers, tuples, dictionaries or dataclasses"
    )
