"""Temperatures against a plain search, and what they are fitted on against a plain walk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit
from synthetic_traces import write_synthetic_trace

from simlab.analysis.export.engine_costs import chain_positions, temperature_of
from simlab.traces.reader import open_trace


@given(st.integers(0, 2**32 - 1), st.floats(0.3, 3.0))
@settings(max_examples=examples(25))
def test_the_temperature_is_the_most_likely_one(seed: int, true: float) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(1.0, 2.0, 2000)
    right = generator.random(2000) < expit(logits / true)

    def loss(log_t: float) -> float:
        signed = np.where(right, logits, -logits) / np.exp(log_t)
        return float(np.logaddexp(0, -signed).sum())

    best: Any = minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded", options={"xatol": 1e-9})
    temperature = temperature_of((logits, right))
    assert temperature == pytest.approx(np.exp(best.x), rel=1e-3)
    assert temperature == round(temperature, 6)


def test_too_little_was_seen() -> None:
    assert temperature_of((np.ones(40), np.ones(40, bool))) == 1.0


def test_positions_are_those_of_right_paths_within_the_text(tmp_path: Path) -> None:
    trace = open_trace(write_synthetic_trace(tmp_path / "trace", num_sequences=5, length=12))
    draft = trace.draft_name(None)
    wanted: list[list[tuple[float, bool]]] = [[] for _ in range(trace.manifest.draft_sets[draft].depth)]
    for sequence in trace.recorded(draft):
        assert sequence.rows is not None
        for t, marginals in enumerate(sequence.rows.rows()):
            for d in range(min(len(wanted), len(sequence.text) - 1 - t)):
                index = int(marginals.offsets[d])
                is_right = int(marginals.ids[index]) == int(sequence.text[t + 1 + d])
                prob = min(max(float(np.exp(np.float64(marginals.log_probs[index]))), 2**-16), 1 - 2**-16)
                wanted[d].append((np.log(prob / (1 - prob)), is_right))
                if not is_right:
                    break
    parts = [some.drafted() for some in trace.recorded_texts(draft, range(5), 20, ())]
    for found, expected in zip(chain_positions(parts), wanted, strict=True):
        assert found[1].tolist() == [right for _, right in expected]
        assert np.allclose(found[0], [logit for logit, _ in expected])
