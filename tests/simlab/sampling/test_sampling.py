"""The source of chance and the target's choice: oracle, law, and independence of the batch."""

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from depth import some
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from simlab.sampling.choice import (
    ALLOWED,
    Sampling,
    _winner,
    choose,
    choose_rows,
    gap_of,
    gaps_of,
    gumbel,
    noise_key,
)

Row = list[float]
GREEDY = Sampling(temperature=0, top_k=0, top_p=1, seed=0)
FALSE_ALARM = 1e-6
HAIR = 1e-9
GOLDEN_KEY = 10126843742600828316
GOLDEN_NOISE = ["0x1.e656462027e18p-12", "0x1.9fe62a51f49a6p+0", "0x1.1996964436f90p+0"]


def as_row(values: Row) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def choice_of(row: npt.NDArray[np.float32], how: Sampling, key: int, position: int) -> tuple[int, float, float]:
    """Token, decision gap and logarithm of the normaliser of one row."""
    rows = choose_rows(row[np.newaxis], how, np.array([key], np.uint64), np.array([position]))
    return int(rows.tokens[0]), float(rows.decision_gaps[0]), float(rows.log_normalisers[0])


# The oracle: plain Python, slow, by the definitions.


def noise_by_hand(key: int, position: int, token: int) -> float:
    def mixed(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    golden = 0x9E3779B97F4A7C15
    state = mixed((mixed((key + golden) % 2**64) + golden * (position + 1)) % 2**64)
    bits = mixed(mixed((state + golden * (token + 1)) % 2**64) ^ state) >> 11
    return -math.log(-math.log(max(bits, 0.5) / 2**53))


def prefix_length(masses: list[float], share: float) -> int:
    total = math.fsum(masses)
    for length in range(1, len(masses)):
        if math.fsum(masses[:length]) >= share * total:
            return length
    return len(masses)


def supports(logits: Row, how: Sampling) -> tuple[set[int], set[int], set[int]]:
    """Tokens allowed; allowed whatever a hair changes; allowed if a hair changes."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if how.temperature == 0:
        return set(order), set(order), set(order)
    kept = order[: how.top_k] if how.top_k else order
    masses = [math.exp((logits[token] - logits[order[0]]) / how.temperature) for token in kept]
    low, middle, high = (
        len(kept) if how.top_p == 1 else prefix_length(masses, how.top_p + change) for change in (-HAIR, 0, HAIR)
    )
    num_above = [sum(other > logit for other in logits) for logit in logits]
    num_not_below = [sum(other >= logit for other in logits) for logit in logits]
    sure = {token for token in order if num_not_below[token] <= low}
    possible = {token for token in order if num_above[token] < high}
    return set(order[:middle]), sure, possible


def values_of(logits: Row, how: Sampling, key: int, position: int) -> Row:
    if how.temperature == 0:
        return logits
    return [logit / how.temperature + noise_by_hand(key, position, v) for v, logit in enumerate(logits)]


def token_by_hand(logits: Row, how: Sampling, key: int, position: int) -> int:
    values = values_of(logits, how, key, position)
    return min(supports(logits, how)[0], key=lambda token: (-values[token], token))


def gap_by_hand(logits: Row, emitted: int, how: Sampling, key: int, position: int) -> float:
    values = values_of(logits, how, key, position)
    allowed, sure, possible = supports(logits, how)

    def best(tokens: set[int]) -> float:
        return max((values[token] for token in tokens - {emitted}), default=-math.inf)

    own = values[emitted]
    if own == -math.inf:
        return -math.inf
    if token_by_hand(logits, how, key, position) == emitted:
        if emitted not in sure or best(possible) >= own:
            return 0.0
    elif emitted in possible and own >= best(sure):
        return 0.0
    return (own - best(allowed)) * (how.temperature or 1.0) if emitted in allowed else -math.inf


levels = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 4.0, -30.0, -math.inf])
free = st.floats(min_value=-20, max_value=20, width=32)
logit_rows = st.lists(levels, min_size=1, max_size=12) | st.lists(free, min_size=1, max_size=12)
settings_of_sampling = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.integers(min_value=0, max_value=14),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.25, 0.1, 1e-3]) | st.floats(min_value=0.01, max_value=1),
    seed=st.just(0),
)
keys = st.integers(min_value=0, max_value=2**64 - 1)
positions = st.integers(min_value=0, max_value=40960)


@given(logit_rows, settings_of_sampling, keys, positions)
def test_choice_agrees_with_the_definitions(logits: Row, how: Sampling, key: int, position: int) -> None:
    assume(max(logits) > -math.inf)
    token, gap, log_normaliser = choice_of(as_row(logits), how, key, position)
    assert token == choose(as_row(logits), how, key, position) == token_by_hand(logits, how, key, position)
    expected = gap_by_hand(logits, token, how, key, position)
    assert math.isclose(gap, expected, rel_tol=1e-9, abs_tol=1e-9)
    assert (gap == 0) == (expected == 0)
    temperature = how.temperature or 1.0
    total = math.fsum(math.exp(logit / temperature) for logit in logits)
    assert math.isclose(log_normaliser, math.log(total), rel_tol=1e-9, abs_tol=1e-9)


@given(logit_rows, settings_of_sampling, keys, positions, st.data())
def test_gap_of_any_token_agrees_with_the_definitions(
    logits: Row, how: Sampling, key: int, position: int, data: st.DataObject
) -> None:
    assume(max(logits) > -math.inf)
    emitted = data.draw(st.integers(min_value=0, max_value=len(logits) - 1))
    gap = gap_of(as_row(logits), emitted, how, key, position)
    expected = gap_by_hand(logits, emitted, how, key, position)
    assert math.isclose(gap, expected, rel_tol=1e-9, abs_tol=1e-9)
    token, decision_gap, _ = choice_of(as_row(logits), how, key, position)
    if emitted == token:
        assert gap == decision_gap >= 0
    else:
        assert gap <= 0


@pytest.mark.parametrize("emitted", [-1, 3])
def test_a_token_outside_the_vocabulary_has_no_gap(emitted: int) -> None:
    with pytest.raises(ValueError, match=f"must lie in 0 ... 2; got {emitted}"):
        gap_of(as_row([0.0, 1.0, 2.0]), emitted, GREEDY, 0, 0)


@given(st.lists(logit_rows, min_size=1, max_size=5), settings_of_sampling, st.data())
def test_a_row_does_not_depend_on_its_batch(rows: list[Row], how: Sampling, data: st.DataObject) -> None:
    width = max(map(len, rows))
    table = np.array([row + [-math.inf] * (width - len(row)) for row in rows], np.float32)
    assume((table.max(1) > -math.inf).all())
    some_keys = np.array(data.draw(st.lists(st.sampled_from([0, 3, 2**64 - 1]), min_size=5, max_size=5)), np.uint64)
    places = np.array(data.draw(st.lists(st.sampled_from([0, 7]), min_size=5, max_size=5)), np.int64)
    together = choose_rows(table, how, some_keys[: len(rows)], places[: len(rows)])
    for row in range(len(rows)):
        alone = choice_of(table[row], how, int(some_keys[row]), int(places[row]))
        assert alone == (together.tokens[row], together.decision_gaps[row], together.log_normalisers[row])


# Large vocabularies, where the nucleus is searched in widening prefixes.


@pytest.mark.parametrize(
    "how", some([Sampling(1.0, k, p, 0) for k, p in itertools.product((0, 50, 3000), (0.3, 0.999, 1.0))], quick=3)
)
@pytest.mark.parametrize("spread", [0.05, 3.0])
def test_large_vocabulary(how: Sampling, spread: float) -> None:
    logits = np.random.default_rng(1).normal(0, spread, 4000).astype(np.float32)
    listed = logits.tolist()
    token, gap, _ = choice_of(logits, how, 9, 4)
    order = sorted(range(len(listed)), key=lambda token: (-listed[token], token))
    kept = order[: how.top_k] if how.top_k else order
    masses = np.exp([listed[token] for token in kept])
    allowed = kept[: 1 + int(np.argmax(np.cumsum(masses) >= how.top_p * masses.sum()))] if how.top_p < 1 else kept
    best, second = sorted((listed[v] + noise_by_hand(9, 4, v), v) for v in allowed)[:-3:-1]
    assert token == best[1]
    assert math.isclose(gap, best[0] - second[0], rel_tol=1e-9)


# Noise.


def test_noise_is_a_function_of_key_position_and_token() -> None:
    key = noise_key(seed=3, prompt_id="gsm8k/17", turn=0, sample=1)
    noise = gumbel(key, 12, 300)
    assert (noise == gumbel(key, 12, 300)).all()
    assert (noise[:40] == gumbel(key, 12, 40)).all()
    assert np.allclose(noise, [noise_by_hand(key, 12, token) for token in range(300)], rtol=1e-13, atol=1e-15)
    for other in (gumbel(key, 13, 300), gumbel(key + 1, 12, 300), gumbel(0, 12, 300)):
        assert not (other == noise).any()


def test_noise_has_known_bits() -> None:
    """Golden: these bits are the same on every machine."""
    assert noise_key(3, "gsm8k/17", 0, 1) == GOLDEN_KEY
    assert [float(value).hex() for value in gumbel(GOLDEN_KEY, 12, 3)] == GOLDEN_NOISE


def test_each_part_of_the_key_matters() -> None:
    names = itertools.product((0, 1), ("a", "b", "ä"), (0, 1), (0, 1))
    assert len({noise_key(*name) for name in names}) == 24


def test_noise_follows_gumbels_law() -> None:
    columns = np.array([gumbel(noise_key(0, "p", 0, 0), position, 50) for position in range(2000)])
    assert stats.kstest(columns.ravel(), stats.gumbel_r.cdf).pvalue > FALSE_ALARM
    for array, other in ((columns[1:], columns[:-1]), (columns[:, 1:], columns[:, :-1])):
        assert np.asarray(stats.spearmanr(array.ravel(), other.ravel()))[1] > FALSE_ALARM
    other_text = np.array([gumbel(noise_key(0, "p", 0, 1), position, 50) for position in range(2000)])
    assert np.asarray(stats.spearmanr(columns.ravel(), other_text.ravel()))[1] > FALSE_ALARM


# The law of the tokens.


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "kept"),
    [(1.0, 0, 1.0, 6), (0.6, 0, 1.0, 6), (1.0, 3, 1.0, 3), (1.0, 0, 0.8, 3), (1.5, 4, 0.9, 4), (1.0, 2, 0.6, 1)],
)
def test_tokens_follow_the_law_of_plain_sampling(temperature: float, top_k: int, top_p: float, kept: int) -> None:
    logits = as_row([0.3, 2.0, -1.0, 1.0, 0.1, 1.2])
    num_draws = 20_000
    rows = np.broadcast_to(logits, (num_draws, 6))
    how = Sampling(temperature, top_k, top_p, seed=5)
    key = np.full(num_draws, noise_key(how.seed, "law", 0, 0), np.uint64)
    tokens = choose_rows(rows, how, key, np.arange(num_draws)).tokens
    order = np.argsort(-logits)[:kept]
    law = np.exp(logits[order].astype(np.float64) / temperature)
    counts = np.bincount(tokens, minlength=6)
    assert counts[order].sum() == num_draws
    if kept > 1:
        assert stats.chisquare(counts[order], num_draws * law / law.sum()).pvalue > FALSE_ALARM


# Borders.


def test_greedy_takes_the_smallest_id_of_the_largest_logit() -> None:
    token, gap, _ = choice_of(as_row([1.0, 3.0, 3.0, -math.inf]), GREEDY, 0, 0)
    assert (token, gap) == (1, 0.0)
    token, gap, log_normaliser = choice_of(as_row([1.0, 3.5, 3.0, -math.inf]), GREEDY, 0, 0)
    assert (token, gap) == (1, 0.5)
    assert math.isclose(log_normaliser, math.log(sum(map(math.exp, (1.0, 3.5, 3.0)))))
    assert gap_of(as_row([1.0, 3.5, 3.0]), 0, GREEDY, 0, 0) == -2.5
    assert gap_of(as_row([1.0, -math.inf]), 1, GREEDY, 0, 0) == -math.inf
    assert choose(as_row([-0.0, 0.0]), GREEDY, 0, 0) == 0


@pytest.mark.parametrize("tokens", [[5, 3, 9], [3, 9, 5], [9, 5, 3]])
def test_the_smallest_of_equals_wins_in_whatever_order_they_are(tokens: list[int]) -> None:
    """Behind a filter tokens stand by their logits, and noise makes others equal."""
    standings = np.full(3, ALLOWED, np.uint8)
    assert _winner(np.array(tokens), standings, np.full(3, 2.0)) == 3


@given(st.lists(levels, min_size=1, max_size=8), keys, positions)
def test_top_1_is_greedy(logits: Row, key: int, position: int) -> None:
    assume(max(logits) > -math.inf)
    token, gap, _ = choice_of(as_row(logits), Sampling(1.0, 1, 1.0, 0), key, position)
    assert token == choose(as_row(logits), GREEDY, key, position)
    assert gap == (0.0 if logits.count(max(logits)) > 1 else math.inf)


def emitted_tokens(logits: Row, how: Sampling) -> set[int]:
    rows = np.broadcast_to(as_row(logits), (400, len(logits)))
    return set(choose_rows(rows, how, np.zeros(400, np.uint64), np.arange(400)).tokens.tolist())


def test_top_p_keeps_the_shortest_prefix_that_reaches_it() -> None:
    quarters = [0.0] * 4
    for top_p, kept in ((0.25, 1), (0.2500001, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)):
        assert emitted_tokens(quarters, Sampling(1.0, 0, top_p, 0)) == set(range(kept))


def test_top_p_is_a_share_of_what_top_k_leaves() -> None:
    quarters = [0.0] * 4
    assert emitted_tokens(quarters, Sampling(1.0, 2, 0.5, 0)) == {0}
    assert emitted_tokens(quarters, Sampling(1.0, 2, 0.51, 0)) == {0, 1}


def test_a_border_that_a_hair_moves_has_no_gap() -> None:
    thirds = [math.log(2.0), 0.0, -5.0]
    share = math.exp(as_row(thirds)[0]) / sum(map(math.exp, as_row(thirds)))
    rows, key = np.broadcast_to(as_row(thirds), (200, 3)), np.zeros(200, np.uint64)
    values = [values_of(thirds, Sampling(1.0, 0, 1.0, 0), 0, position)[:2] for position in range(200)]
    for top_p in (share - HAIR / 2, share + HAIR / 2):
        gaps = choose_rows(rows, Sampling(1.0, 0, top_p, 0), key, np.arange(200)).decision_gaps
        assert [gap == 0 for gap in gaps] == [second > first for first, second in values]
    well_inside = choose_rows(rows, Sampling(1.0, 0, share - 1e-6, 0), key, np.arange(200))
    assert (well_inside.decision_gaps == math.inf).all()


def test_equal_logits_at_rank_k_have_no_gap() -> None:
    logits = as_row([5.0, 0.0, 0.0])
    for position in range(200):
        token, gap, _ = choice_of(logits, Sampling(4.0, 2, 1.0, 0), 0, position)
        third = logits[2] / 4.0 + noise_by_hand(0, position, 2)
        first = logits[0] / 4.0 + noise_by_hand(0, position, 0)
        assert (gap == 0) == (token == 1 or third > first)


@pytest.mark.parametrize("bad", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
@pytest.mark.parametrize("how", [GREEDY, Sampling(1.0, 1, 0.5, 0)])
def test_rows_that_are_no_law_are_refused(bad: Row, how: Sampling) -> None:
    with pytest.raises(ValueError, match="row 1"):
        choose_rows(as_row([0.0, 0.0, *bad]).reshape(2, 2), how, np.zeros(2, np.uint64), np.zeros(2, np.int64))


@pytest.mark.parametrize(
    "settings",
    [
        (-1.0, 0, 1.0),
        (math.nan, 0, 1.0),
        (math.inf, 0, 1.0),
        (1e-9, 0, 1.0),
        (1.0, -1, 1.0),
        (1.0, 0, 0.0),
        (1.0, 0, 1.1),
    ],
)
def test_impossible_settings_are_refused(settings: tuple[float, int, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Sampling(*settings, seed=0)


@pytest.mark.parametrize(
    ("key", "position", "size"), [(-1, 0, 3), (1 << 64, 0, 3), (0, -1, 3), (0, 0, -1), (1 << 70, 0, 3)]
)
def test_noise_of_no_position_is_refused(key: int, position: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"expected a 64-bit key, .* got {key}, {position}, {size}"):
        gumbel(key, position, size)


def test_wrong_arguments_are_refused() -> None:
    row, key, array = np.zeros((1, 2), np.float32), np.zeros(1, np.uint64), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="float32"):
        choose_rows(row.astype(np.float64), GREEDY, key, array)
    with pytest.raises(ValueError, match="keys"):
        choose_rows(row, GREEDY, np.zeros(2, np.uint64), array)
    with pytest.raises(ValueError, match="positions"):
        choose_rows(row, GREEDY, key, array - 1)
    for token in (-1, 2):
        with pytest.raises(ValueError, match="emitted"):
            gaps_of(row, np.array([token], np.int32), GREEDY, key, array)
    with pytest.raises(ValueError, match="key"):
        gumbel(2**64, 0, 1)
