"""Values that are rarely right, and lists in another order: what damages of every format are drawn from."""

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

TEXTS = ("", "x", "7", "NaN", "{", "a\nb", "\0", "\x1b[2J\x1b]0;owned\a", "abc\u202edcba", "../../../../etc/passwd")
"""Texts that no file should hold, or that a terminal must not be shown."""


def number(chance: Random) -> float:
    """A number at an edge: small, of a power of two, or none that is finite."""
    power = 2 ** chance.choice((8, 16, 31, 32, 53, 62, 63, 64))
    edges = (0, 1, -1, 7, power, power - 1, -power, 1.5, -0.0, 5e-324, 1e30, math.nan, math.inf, -math.inf)
    return chance.choice(edges)


def near(value: object, chance: Random) -> object:
    """Another value of the same type, close to one; None for what has no neighbours."""
    match value:
        case bool():
            return not value
        case int():
            return chance.choice((value + 1, value - 1, -value, value * 10, value * 1000, 10**9))
        case float():
            return chance.choice((value * 2, -value, value * 1e-9, value * 1e9, value + 1e-6))
        case str():
            return chance.choice((value + "x", value[:-1], value.upper(), value[::-1], " " + value))
        case _:
            return None


def rearranged(items: Sequence[T], chance: Random) -> tuple[list[T], str]:
    """A list of one item or more with items gone, doubled or in another order, and what was done."""
    at, other = chance.randrange(len(items)), chance.randrange(len(items))
    # Neighbours half of the time: of items in order, those that are far from each other are seen to be wrong.
    other = chance.choice((other, max(at - 1, 0)))
    exchanged = list(items)
    exchanged[at], exchanged[other] = items[other], items[at]
    changes = (
        ([*items[:at], *items[at + 1 :]], f"lacks item {at}"),
        ([*items[: at + 1], *items[at:]], f"has item {at} twice"),
        *[(exchanged, f"has items {at} and {other} in each other's place")] * 2,
        (list(items[::-1]), "is turned round"),
        (list(items[:at]), f"ends before item {at}"),
        ([*items, *items[at:]], f"has the items from {at} on a second time"),
        (list(items) * 40, "stands there forty times"),
    )
    return chance.choice(changes)
