"""The rounds of one text, priced one text at a time: what the engine's sums are held against."""

from dataclasses import replace

from simlab.columns import RoundColumns
from simlab.cost.stages import PLAIN, STAGES, StageSeconds
from simlab.cost.table import CostTable
from simlab.policy import AnyPolicy, is_plain_decoding, routes_of


def price(policy: AnyPolicy, rounds: RoundColumns, prompt_length: int, cost: CostTable) -> StageSeconds:
    """What the rounds of one text cost, summed.

    Plain decoding pays the seconds of its own fastest path, all of them as ``verify_s``; a policy that needs no drafter
    pays no ``draft_s``, and one that reads no channel no ``channel_s``. A router's rounds pay what their route pays,
    plain decoding there a pass of the root alone. Neither prefill nor catching up is in it.

    Args:
        policy: whose rounds they are.
        rounds: of one text.
        prompt_length: tokens of the prompt, so that a root at ``t`` has ``prompt_length + t`` before it.
        cost: what a stage costs.
    """
    routes = routes_of(policy)
    if routes:
        total = StageSeconds()
        for place, route in enumerate(routes):
            own = rounds.of_route(place)
            own = own if route.needs.paid_as_asked is not None else replace(own, num_asked=None)
            total += price_rounds(own, prompt_length, cost.charged_route(policy, route), route.needs.draft)
        return total
    if is_plain_decoding(policy):
        sums = cost.sums((PLAIN,), rounds.positions + prompt_length, rounds.num_drafted)
        return StageSeconds(verify_s=float(sums[0, 0]))
    return price_rounds(rounds, prompt_length, cost.charged(policy), with_draft=policy.needs.draft)


def price_rounds(rounds: RoundColumns, prompt_length: int, cost: CostTable, with_draft: bool) -> StageSeconds:
    """What rounds of drafting and verifying cost, whoever chose their trees.

    Args:
        rounds: of one text.
        prompt_length: tokens of the prompt.
        cost: what a stage costs.
        with_draft: whether a drafter was run in each round.
    """
    paid = STAGES if with_draft else STAGES[1:]
    contexts = rounds.positions + prompt_length
    sums = cost.sums(paid, contexts, rounds.num_drafted, num_asked=rounds.num_asked)[0].tolist()
    return StageSeconds(**{f"{stage}_s": seconds for stage, seconds in zip(paid, sums, strict=True)})
