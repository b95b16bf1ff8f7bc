"""What a search tries: policies as people type them, some settings of which may be ranges."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.composition import Described

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_RANGE = re.compile(rf'"(?:[^"\\]|\\.)*"|(?<=[:,])(?P<key>\w+)=(?P<low>{_NUMBER})~(?P<high>{_NUMBER})(?=,|$)')

DIGITS = 4
"""Significant digits of a number that is drawn from a range, so that a label can be typed again."""


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """One ``-p``: ``NAME:key=value``, where a value may be a grid ``a/b`` or ``a..b``, or a range ``a~b``.

    Attributes:
        text: as it was typed.
        ranges: the smallest and the largest number of each, both included, by the setting, in their order.
    """

    text: str
    ranges: Mapping[str, tuple[float, float]]

    def at(self, values: Mapping[str, str]) -> str:
        """The text with a value in place of each range."""

        def value_of(match: re.Match[str]) -> str:
            return match[0] if match["key"] is None else f"{match['key']}={values[match['key']]}"

        return _RANGE.sub(value_of, self.text)

    def ends(self) -> tuple[str, str]:
        """The text at the lower and at the upper ends of its ranges."""
        lows, highs = ({key: f"{ends[index]:.12g}" for key, ends in self.ranges.items()} for index in range(2))
        return self.at(lows), self.at(highs)


def number_within(low: float, high: float, value: float, whole: bool) -> str:
    """A number of a range as it is typed: rounded to `DIGITS`, or to a whole one, and within both ends."""
    rounded = round(value) if whole else float(f"{value:.{DIGITS}g}")
    return f"{min(max(rounded, low), high):.12g}"


def parse_entry(text: str) -> SearchEntry:
    """What was typed; names and settings are checked when policies are made of it.

    Raises:
        PolicyError: a range does not rise.

    >>> entry = parse_entry("presto:ngram_weight=0.0~1.0,budget=8/16")
    >>> entry.at({"ngram_weight": "0.25"})
    'presto:ngram_weight=0.25,budget=8/16'
    """
    matches = [match for match in _RANGE.finditer(text) if match["key"] is not None]
    ranges = {span["key"]: (float(span["low"]), float(span["high"])) for span in matches}
    for key, (low, high) in ranges.items():
        if not -math.inf < low < high < math.inf:
            raise PolicyError(
                f"`{text}`: {key}={low:g}~{high:g} should rise, between finite numbers; write the smaller end first"
            )
    return SearchEntry(text, ranges)


def built_in_entries(budget: int, depth: int) -> list[str]:
    """What is searched where nothing is named: every policy of the table that says what is tried of it.

    Fixed budgets are tried one by one, since they cost next to nothing together; a rule that reads prices decides
    itself, so it has few settings to try. ``ddtree`` is searched in any case, and so are plain decoding and the whole
    chain; a rule that was found to lose (``entropy-width``) is not.

    Args:
        budget: drafted tokens, at most.
        depth: of the draft set.
    """
    return [
        f"{name}:{settings}"
        for name, policy in POLICIES.items()
        if isinstance(policy, type) and issubclass(policy, Described)
        for settings in policy.searched(budget, depth)
    ]
