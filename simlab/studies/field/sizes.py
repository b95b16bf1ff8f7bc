"""How large a field is: prompts, tokens, what is timed, how long it runs; and about how long all that takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from simlab.studies.field.models import CHANNEL, FieldModels
from simlab.studies.field.systems import EQUAL

_TOKENS_A_TEXT = 0.9
"""Of the tokens that an answer may have, what answers have on the average: some stop earlier."""

_RECORDED = 1.0
_ADDED: Mapping[str, float] = {"eagle3": 0.7, "treeflash": 1.0, "taps": 0.7, "d2sd": 1.2, "jetspec": 3.5}
_ADDED_ELSE = 0.7
"""What a position takes in tokens of plain decoding: recording target and first drafter, and adding a channel or a
draft set, by its name."""

_TIMED_PASS = 10.0
"""What one sample of a round takes at one context and number of nodes, likewise."""

_CHOOSING_S = 75.0
"""Of the replays and the search on the dev prompts, on two cores."""

_LOADING_S = 6.0
"""Of models, once a step."""


@dataclass(frozen=True, slots=True)
class FieldSize:
    """How much is measured.

    Attributes:
        dev_prompts: of the prompts that settings are chosen on, the first so many.
        prompts: of those that are reported, likewise.
        max_new_tokens: of an answer.
        node_counts: that rounds are timed at.
        contexts: likewise, tokens before the root.
        repeats: samples of each.
        catch_up: tokens that a drafter of a router may have missed, likewise.
        confirm_minutes: of all runs of the real models together.
        equal_share: of these minutes, for systems at equal nodes, where tokens are what one looks at; 0: only those at
            their fastest run.
    """

    dev_prompts: int
    prompts: int
    max_new_tokens: int
    node_counts: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    catch_up: tuple[int, ...]
    confirm_minutes: float
    equal_share: float

    def share_of(self, group: str) -> float:
        """The share of the minutes of runs that a group of systems has: `EQUAL` or `FASTEST`."""
        return self.equal_share if group == EQUAL else 1 - self.equal_share


FULL = FieldSize(40, 64, 96, (4, 7, 8, 12, 16, 24, 32, 48, 64), (64, 192, 384, 640), 7, (1, 16, 64, 256), 75.0, 0.35)
QUICK = FieldSize(4, 4, 32, (4, 7, 16, 64), (64, 640), 2, (1, 64), 1.0, 0.0)


def sized(quick: bool, confirm_minutes: float | None) -> FieldSize:
    """The whole field, or one that ends in minutes; ``confirm_minutes`` in place of its own."""
    size = QUICK if quick else FULL
    return size if confirm_minutes is None else replace(size, confirm_minutes=confirm_minutes)


def expected_seconds(
    size: FieldSize, models: FieldModels, token_s: float, texts: Mapping[str, int]
) -> dict[str, float]:
    """About how long each step takes, by its name, the runs of the real models apart.

    Args:
        size: of the field.
        models: that run.
        token_s: of a token of plain decoding on this machine.
        texts: of the prompts of ``dev`` and ``eval``: a prompt of two turns is two.
    """
    found: dict[str, float] = {}
    for side, num in texts.items():
        positions = num * size.max_new_tokens * _TOKENS_A_TEXT * token_s
        found[f"record {side}"] = _LOADING_S + positions * _RECORDED
        for kind, name in models.additions:
            share = _ADDED.get(name, _ADDED_ELSE) if kind == CHANNEL else _ADDED_ELSE
            found[f"add {kind} {name} {side}"] = _LOADING_S + positions * share
    for drafter in models.drafters:
        units = sum(max(len(one.units), 1) for one in models.channels_of(drafter).values())
        late = len(size.catch_up) if drafter == models.first else 0
        cells = (len(size.node_counts) + 2 + units + late) * len(size.contexts)
        found[f"profile {drafter}"] = _LOADING_S + cells * size.repeats * _TIMED_PASS * token_s
    found["choose"] = _CHOOSING_S
    return found
