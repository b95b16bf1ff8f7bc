"""Columns of a drafter's rows put together from parts, and without a row."""

from dataclasses import fields

import numpy as np
import pytest

from simlab.traces.format.frames import DraftColumns
from simlab.traces.synthetic import DRAFT, synthetic_sequences

COLUMNS = synthetic_sequences(length=12)[0].drafts[DRAFT]


def part(first: int, last: int) -> DraftColumns:
    """Some rows of `COLUMNS`."""
    kept = COLUMNS.rows().part(first, last, COLUMNS.rows().starts())
    rows = {
        entry.name: getattr(COLUMNS, entry.name)[first:last]
        for entry in fields(COLUMNS)
        if entry.name not in ("ids", "log_probs")
    }
    return DraftColumns(ids=kept.ids, log_probs=kept.log_probs, **rows)


def assert_equal(found: DraftColumns, expected: DraftColumns) -> None:
    for entry in fields(DraftColumns):
        column = getattr(found, entry.name)
        np.testing.assert_array_equal(column, getattr(expected, entry.name))
        assert column.dtype == getattr(expected, entry.name).dtype
        assert not column.flags.writeable


def test_parts_of_a_text_give_the_whole_again() -> None:
    num = len(COLUMNS.counts)
    assert_equal(DraftColumns.concatenated([part(0, 3), part(3, 4), part(4, num)]), COLUMNS)
    assert_equal(DraftColumns.concatenated([COLUMNS]), COLUMNS)


def test_columns_without_a_row_add_nothing() -> None:
    depth = COLUMNS.counts.shape[1]
    none = DraftColumns.empty(depth)
    assert none.counts.shape == (0, depth)
    assert_equal(DraftColumns.concatenated([none, COLUMNS, none]), COLUMNS)
    assert_equal(DraftColumns.concatenated([none, none]), none)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="need at least one array"):
        DraftColumns.concatenated([])
    with pytest.raises(ValueError, match="dimension"):
        DraftColumns.concatenated([COLUMNS, DraftColumns.empty(COLUMNS.counts.shape[1] + 1)])
