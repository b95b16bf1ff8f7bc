"""Channels of a round against those of a record: what differs is listed, with its size."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simlab.channels import Pool, Transitions
from simlab.real_runner.confirm.record_comparison import compare_channels


def transitions(ids: list[list[int]], log_probs: list[list[float]], previous: tuple[int, ...] = (7, 8)) -> Transitions:
    return Transitions(
        np.array([1, 2], np.int32),
        np.array(previous, np.int32),
        np.array(ids, np.int32),
        np.array(log_probs, np.float32),
    )


IDS, LOG_PROBS = [[7, 8], [1, 2], [3, 4]], [[-0.5, -1.0], [-0.25, -2.0], [-1.0, -1.5]]
ONE = transitions(IDS, LOG_PROBS)


def test_equal_channels_do_not_differ() -> None:
    assert compare_channels(3, "flash", ONE, ONE) == ([], 0.0)


def test_rows_are_paired_by_the_token_above() -> None:
    """Two tokens of the drafter that nearly tie may have changed places, and their rows with them."""
    swapped = transitions([IDS[0], IDS[2], IDS[1]], [LOG_PROBS[0], LOG_PROBS[2], LOG_PROBS[1]], (8, 7))
    assert compare_channels(3, "flash", swapped, ONE) == ([], 0.0)


def test_other_ranks_are_listed_with_their_sizes() -> None:
    ran = transitions([[7, 8], [2, 1], [3, 5]], [[-0.5, -1.125], [-0.25, -0.5], [-1.0, -1.5]])
    differences, largest = compare_channels(3, "flash", ran, ONE)
    assert largest == 1.75
    first, second = differences
    assert (first.position, first.channel, first.below, first.num_ranks) == (3, "flash", "depth 2 below 7", 2)
    assert (first.gap, first.size) == (1.75, 1.75)
    assert (second.below, second.num_ranks, second.size) == ("depth 2 below 8", 1, 0.0)
    assert math.isnan(second.gap)
    assert str(first) == "flash at 3, depth 2 below 7: 2 ranks differ (gap 1.75, log-probs by 1.75)"


def test_log_probs_alone_that_differ_are_no_other_ranks() -> None:
    moved = replace(ONE, log_probs=np.array([[-0.5, -1.0], [-0.25, -2.0], [-1.0, -1.625]], np.float32))
    assert compare_channels(3, "flash", moved, ONE) == ([], 0.125)


def test_a_row_that_only_one_has_differs_in_all_ranks() -> None:
    other = transitions(IDS, LOG_PROBS, (7, 9))
    found = [(one.below, one.num_ranks) for one in compare_channels(3, "flash", other, ONE)[0]]
    assert found == [("depth 2 below 9", 2), ("depth 2 below 8", 2)]


def test_pools_are_paired_by_paths() -> None:
    def pool(tokens: list[int], log_probs: list[float]) -> Pool:
        parents, expanded = np.array([0, 0, 1], np.int32), np.array([True, False, False])
        return Pool(np.array(tokens, np.int32), parents, np.array(log_probs, np.float32), expanded)

    one = pool([5, 6, 9], [-0.5, -1.0, -0.25])
    assert compare_channels(0, "taps", one, one) == ([], 0.0)
    differences, largest = compare_channels(0, "taps", pool([5, 6, 8], [-0.5, -1.5, -0.25]), one)
    assert largest == 0.5
    assert [(each.below, each.num_ranks) for each in differences] == [("the root 5", 1)]
    with pytest.raises(ValueError, match="another kind"):
        compare_channels(0, "taps", one, ONE)
