"""Policies with ranges as people type them, and what is searched where nothing is typed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts, channel_seconds
from made_up_costs import random_table

from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.optimize.space import built_in_entries, number_within, parse_entry


def test_ranges_are_told_from_grids_and_plain_values() -> None:
    entry = parse_entry("presto:ngram_weight=0.0~1.0,counts=text,budget=8/16/32,text_share=.25~5e-1")
    assert entry.ranges == {"ngram_weight": (0.0, 1.0), "text_share": (0.25, 0.5)}
    assert entry.ends() == (
        "presto:ngram_weight=0,counts=text,budget=8/16/32,text_share=0.25",
        "presto:ngram_weight=1,counts=text,budget=8/16/32,text_share=0.5",
    )
    assert len(parse_policies([entry.at({"ngram_weight": "0.3", "text_share": "0.5"})])) == 3


@pytest.mark.parametrize(
    "text",
    [
        "ddtree:budget=1..512",
        "ar",
        'presto:ngram="a=0~1",budget=8',
        "path/to/mine.py:Mine:size=4",
        "survival:threshold=a~b",
    ],
)
def test_what_has_no_range_stays_as_it_is(text: str) -> None:
    entry = parse_entry(text)
    assert (entry.ranges, entry.ends(), entry.at({})) == ({}, (text, text), text)


@pytest.mark.parametrize("ends", ["1~0", "0.5~0.5"])
def test_a_range_must_rise(ends: str) -> None:
    with pytest.raises(PolicyError, match="should rise"):
        parse_entry(f"survival:threshold={ends}")


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.floats(0, 1), st.booleans())
def test_a_number_of_a_range_can_be_typed_and_is_within_it(low: float, width: float, share: float, whole: bool) -> None:
    low, high = (float(f"{end:.6g}") for end in (low, low + width))
    if whole:
        low, high = float(math.floor(low)), float(math.ceil(high) + 1)
    if low < high:
        value = low + share * (high - low)
        typed = number_within(low, high, value, whole)
        assert low <= float(typed) <= high
        assert abs(float(typed) - value) <= (0.5 if whole else 1e-3 * max(abs(value), abs(low), abs(high)))
        assert not whole or "." not in typed


# A policy of a later day need not be here.
SEARCHED = {
    "chain",
    "adaflash",
    "survival",
    "caddtree",
    "bastion",
    "price",
    "calibrated",
    "presto",
    "expand-parent",
    "eagle2-beam",
    "sequoia",
    "d2sd-boundary",
    "spine-gap",
    "taps",
    "treeflash",
    "tree",
}


@pytest.mark.parametrize(("budget", "depth"), [(1, 1), (6, 7), (64, 7), (256, 15)])
def test_the_built_in_policies_can_be_searched(budget: int, depth: int) -> None:
    prices = random_table(np.random.default_rng(0), most_drafted=budget)
    artefacts = MadeUpArtefacts(replace(prices, channels=channel_seconds(len(prices.contexts))))
    entries = built_in_entries(budget, depth)
    names = {text.partition(":")[0] for text in entries}
    # These are always searched, are another one for a text alone, or were found to lose.
    assert set(POLICIES) - names >= {"ar", "ddtree", "joint", "joint-throughput", "entropy-width"}
    assert names >= SEARCHED
    for text in entries:
        if text.partition(":")[0] in ("calibrated", "presto", "sequoia") or "ngram" in text:
            continue
        for one in parse_policies([text], artefacts):
            assert one.policy.budget <= max(budget, depth), text
