"""What losses, endings and plain decoding's text make of a verdict."""

import numpy as np
import pytest

from simlab.arrays import Ints
from simlab.real_runner.confirm.audit import Kind, TextLosses, Verdict, verdict_of
from simlab.real_runner.decoding.decoded import parting_of

STOP, LIMIT, BOUND = 0, 6, 0.1
TEXT = [7, 8, 9, 5, STOP]


def ints(tokens: list[int]) -> Ints:
    return np.array(tokens, np.int32)


def verdict(
    text: list[int],
    plain: list[int] | None = None,
    choices: list[int] | None = None,
    losses: dict[int, float] | None = None,
) -> Verdict:
    """Losses by place; the choices and the plain text are the text where they are not given."""
    lost = np.zeros(len(text))
    for index, loss in (losses or {}).items():
        lost[index] = loss
    audited = TextLosses(lost, ints(text if choices is None else choices))
    return verdict_of(ints(text), ints(text if plain is None else plain), audited, BOUND, [STOP, 1], LIMIT)


def test_exact() -> None:
    assert verdict(TEXT) == Verdict("exact", bound=BOUND)
    assert str(verdict([7, 8, 9, 5, 4, 3])) == "exact"
    assert str(verdict([7, 8, 9, 5, 4, STOP])) == "exact"
    assert str(verdict([STOP])) == "exact"


def test_ties_are_counted() -> None:
    found = verdict(TEXT, choices=[7, 3, 9, 4, STOP], losses={1: 0.02, 3: BOUND})
    assert found == Verdict("ties", 2, BOUND, BOUND)
    assert str(found) == "ties(2)"


def test_a_tie_may_lose_nothing() -> None:
    assert str(verdict(TEXT, choices=[7, 3, 9, 5, STOP])) == "ties(1)"


def test_plain_decoding_may_be_the_one_that_parts() -> None:
    """One tie wherever the texts part, be it this text's own or the other's."""
    other = [7, 8, 4, STOP]
    assert str(verdict(TEXT, plain=other)) == "ties(1)"
    assert str(verdict(TEXT, plain=other, choices=[7, 8, 4, 5, STOP], losses={2: 0.01})) == "ties(1)"
    assert str(verdict(TEXT, plain=other, choices=[7, 8, 9, 6, STOP], losses={3: 0.01})) == "ties(2)"


def test_a_loss_beyond_the_bound_fails() -> None:
    found = verdict(TEXT, choices=[7, 3, 9, 4, STOP], losses={1: 0.02, 3: 0.11})
    assert (str(found), found.worst_gap, found.num_ties) == ("FAILED", 0.11, 2)
    assert found.fault == "token 3 of the text loses by 0.11 against float32, and the bound is 0.1"
    assert str(verdict(TEXT, choices=[7, 3, 9, 5, STOP], losses={1: np.inf})) == "FAILED"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ([7, STOP, 9], "runs past its stop token, which is token 1 of 3"),
        ([7, 1, 9, STOP], "runs past its stop token, which is token 1 of 4"),
        ([STOP, STOP], "runs past its stop token, which is token 0 of 2"),
        ([7, 8, 9], "ends after 3 tokens without a stop token"),
        ([7, 8, 9, 5, 4, 3, 2], "has 7 tokens, and the limit is 6"),
        ([7, 8, 9, 5, 4, 3, STOP], "has 7 tokens, and the limit is 6"),
    ],
)
def test_a_wrong_end_fails(text: list[int], fault: str) -> None:
    found = verdict(text)
    assert str(found) == "FAILED"
    assert fault in found.fault


def test_verdicts_add_up() -> None:
    exact, ties = Verdict("exact", bound=0.2), Verdict("ties", 2, 0.01, 0.1)
    failed, later = Verdict("FAILED", 1, 0.5, 0.1, "this"), Verdict("FAILED", 0, 0.0, 0.1, "that")
    assert exact + exact == exact
    assert exact + ties + ties == Verdict("ties", 4, 0.01, 0.2)
    assert ties + failed + later == Verdict("FAILED", 3, 0.5, 0.1, "this")
    assert sum([exact, ties], start=Verdict("exact")).kind == "ties"


def test_what_contradicts_itself_is_refused() -> None:
    wrong: list[tuple[Kind, int, str]] = [("exact", 1, ""), ("ties", 0, ""), ("FAILED", 0, ""), ("ties", 1, "this")]
    for kind, num_ties, fault in wrong:
        with pytest.raises(ValueError, match="ties come with"):
            Verdict(kind, num_ties, fault=fault)
    for bound in (-1.0, np.nan):
        with pytest.raises(ValueError, match="a bound is a number"):
            verdict_of(ints(TEXT), ints(TEXT), TextLosses(np.zeros(5), ints(TEXT)), bound, [STOP], LIMIT)


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2, 3], [1, 2], 2), ([], [4], 0), ([3, 2, 1], [4], 0)],
)
def test_where_texts_part(one: list[int], other: list[int], place: int | None) -> None:
    assert parting_of(ints(one), ints(other)) == place
    assert parting_of(ints(other), ints(one)) == place
