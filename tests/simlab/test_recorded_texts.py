"""Texts together: the same as one by one, without copies where they lie side by side."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_depth import of_one_depth
from synthetic_traces import write_synthetic_trace

from simlab.policies.engine.hindsight import fewest_rounds
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.sequence_replay import hindsight_rounds
from simlab.traces.reader import Trace, open_trace


def check_roots(texts: RecordedTexts, sequences: list[RecordedSequence]) -> None:
    """Every column of every root says what the sequences say."""
    roots, index = texts.roots, 0
    assert [sequence.index for sequence in texts.sequences] == [sequence.index for sequence in sequences]
    for text, sequence in enumerate(sequences):
        prompt, length = sequence.prompt.token_ids, len(sequence.text)
        assert sequence.rows is not None
        assert (roots.firsts[text], roots.firsts[text + 1]) == (index, index + length - 1)
        own = roots.tokens[roots.begins[text] : roots.begins[text + 1]]
        assert own.tolist() == [*prompt.tolist(), *sequence.text.tolist()]
        for t, marginals in enumerate(sequence.rows.rows()):
            kept = slice(roots.starts[index], roots.starts[index + 1])
            assert roots.ids[kept].tolist() == marginals.ids.tolist()
            assert roots.log_probs[kept].tolist() == marginals.log_probs.tolist()
            assert roots.tokens[roots.token_indices[index]] == sequence.text[t]
            assert texts.contexts[index] == len(prompt) + t
            assert roots.true_ranks[index].tolist() == sequence.rows.true_ranks[t].tolist()
            assert marginals.entropies is not None
            assert texts.entropies()[index].tolist() == marginals.entropies.tolist()
            index += 1
    assert len(roots.token_indices) == len(roots.counts) == index


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_texts_together_say_what_each_says(seed: int, number: int) -> None:
    sequences = of_one_depth(seed, number)
    check_roots(texts_of(sequences), sequences)


def test_texts_without_a_draft_set_have_roots_and_no_candidates() -> None:
    bare = [
        RecordedSequence(sequence.index, sequence.prompt, sequence.text, "length", None)
        for sequence in of_one_depth(1, 3)
    ]
    texts = texts_of(bare)
    assert texts.roots.counts.shape == (sum(len(sequence.text) - 1 for sequence in bare), 0)
    with pytest.raises(ValueError, match="none were read"):
        texts.drafted()
    with pytest.raises(ValueError, match="of one draft set"):
        texts_of([bare[0], of_one_depth(2, 1)[0]])
    with pytest.raises(ValueError, match="of one draft set"):
        texts_of([])


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 9))
def test_the_fewest_rounds_at_once_are_those_one_by_one(seed: int, number: int, budget: int) -> None:
    sequences = of_one_depth(seed, number)
    texts = texts_of(sequences)
    for found, sequence in zip(fewest_rounds(texts, budget).columns(texts), sequences, strict=True):
        expected = [(r.position, r.num_drafted, r.num_accepted, r.clipped) for r in hindsight_rounds(sequence, budget)]
        columns = found.positions, found.num_drafted, found.num_accepted
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == [r[:3] for r in expected]
        # A bound drafts no token that it does not need, so that none of its rounds is clipped.
        assert int(found.num_committed.sum()) == len(sequence.text) - 1


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder: Path = tmp_path_factory.mktemp("texts") / "trace"
    return open_trace(write_synthetic_trace(folder, num_sequences=9, length=20))


@pytest.mark.parametrize("most_roots", [1, 30, 10**6])
@pytest.mark.parametrize("indices", [None, [0], [1, 2, 5, 8], []])
def test_a_trace_gives_its_texts_in_order_and_not_too_many_at_a_time(
    trace: Trace, most_roots: int, indices: list[int] | None
) -> None:
    parts = list(trace.recorded_texts("synthetic", indices, most_roots))
    wanted = list(trace.recorded("synthetic", indices))
    assert [sequence.index for texts in parts for sequence in texts.sequences] == [one.index for one in wanted]
    for texts in parts:
        assert len(texts.sequences) == 1 or len(texts.roots.token_indices) <= most_roots
        check_roots(texts, [one for one in wanted if one.index in {each.index for each in texts.sequences}])
        assert texts.rows is not None
        for sequence in texts.sequences:
            assert sequence.rows is not None
            assert np.shares_memory(sequence.rows.counts, texts.rows.counts) or len(sequence.text) == 1
