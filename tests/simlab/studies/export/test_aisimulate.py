"""A chain's acceptance for simulators of serving: rates of its rounds, within what they replay."""

from pathlib import Path

import pytest
from eagle3_traces import write_head_trace
from engine_shapes import yaml_mapping
from synthetic_traces import write_synthetic_trace

from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.export.export import export
from simlab.traces.reader import open_trace

FIELDS = {"kind", "params", "draft_model_path", "expected_accepted_tokens", "seed"}
"""Those of SchemeSpeculationConfig in aisimulate/config/engine.py of 0.13.0.dev; another one is refused."""


@pytest.mark.parametrize(("typed", "num"), [("chain:length=3", 3), ("chain", 5)])
def test_rates_are_those_of_the_rounds(typed: str, num: int, tmp_path: Path) -> None:
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=24, length=40)
    made = export("aisimulate", typed, trace=trace)
    speculation = yaml_mapping(made.text)["speculation"]
    assert set(speculation) == FIELDS
    assert (speculation["kind"], speculation["params"]) == ("dflash", {"num_draft_tokens": num})
    (policy,), opened = parse_policies([typed]), open_trace(trace)
    texts = opened.recorded("synthetic", range(len(opened.sequences())))
    accepted = [each.num_committed - 1 for recorded in texts for each in rounds(policy.policy, recorded)]
    mean = sum(min(one, num) for one in accepted) / len(accepted)
    assert speculation["expected_accepted_tokens"] == pytest.approx(mean, rel=1e-12)
    flags = made.notes[-1].split()
    assert flags[:3] == ["--ais-nextn", str(num), "--ais-nextn-accept-rates"]
    reached = [sum(one >= depth for one in accepted) for depth in range(num + 1)]
    rates = [reached[depth + 1] / reached[depth] for depth in range(num)]
    assert [float(rate) for rate in flags[3].split(",")] == pytest.approx(rates)
    assert any("so it is cut" in note for note in made.notes) == (typed == "chain")


def test_a_chain_of_a_head_has_its_own_parameter(tmp_path: Path) -> None:
    made = export("aisimulate", "chain:length=2", trace=write_head_trace(tmp_path / "heads"))
    speculation = yaml_mapping(made.text)["speculation"]
    assert (speculation["kind"], speculation["params"]) == ("eagle3", {"num_speculative_tokens": 2})
