"""``simlab import`` on files, beside the packaged trace."""

import json
from pathlib import Path
from typing import Any

import pytest
from engine_server import FakeEngine

from simlab.cli.main import main
from simlab.studies.engines.foretelling import foretold_texts
from simlab.studies.inputs.trace import sample_trace


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Prometheus text before and after all texts of the sample were written."""
    folder = tmp_path_factory.mktemp("metrics")
    trace = sample_trace()
    engine = FakeEngine(foretold_texts(trace, trace.draft_name(None), 7, None))
    engine.count(engine.rounds_of(engine.texts[0], 20), 20)
    before, after = folder / "before.txt", folder / "after.txt"
    before.write_text(engine.metrics())
    for text in engine.texts:
        engine.count(engine.rounds_of(text, len(text)), len(text))
    after.write_text(engine.metrics())
    return before, after


def read(capsys: pytest.CaptureFixture[str], *typed: str, code: int = 0) -> dict[str, Any]:
    assert main(["import", *typed, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_traces_own_prompts_are_foretold(metrics: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, metrics)
    found = read(capsys, after, "--before", before, "--same-prompts")
    assert found["verdict"] == "confirmed"
    assert found["counters"]["rounds"] == found["counters_foretold"]["rounds"]
    assert main(["import", after, "--same-prompts"]) == 2
    assert "--limit" in capsys.readouterr().err


def test_the_same_traffic_is_no_drift(metrics: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, metrics)
    found = read(capsys, after, "--before", before)
    assert found["drift"] is False
    assert found["figures"][0]["ratio"] == pytest.approx(1)
    assert len(found["figures"]) == 8
    assert main(["import", after, "--before", before]) == 0
    assert capsys.readouterr().out.startswith("NO DRIFT FOUND")


def test_other_traffic_is_a_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench: dict[str, object] = {"completed": 200, "output_throughput": 1.0, "total_output_tokens": 20_200}
    bench |= {"spec_decode_num_drafts": 16_000, "spec_decode_draft_tokens": 112_000}
    bench |= {"spec_decode_accepted_tokens": 4_000}
    bench |= {"spec_decode_per_position_acceptance_rates": [0.2, 0.03, 0.01, 0.005, 0.003, 0.001, 0.001]}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench, indent=1))
    found = read(capsys, str(path), code=1)
    assert found["drift"] is True
    assert found["figures"][0]["differs"]


def test_a_smaller_block_is_refused_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"completed": 4, "total_output_tokens": 100, "accept_length": 2.5}
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(line | {"server_info": {"speculative_num_draft_tokens": 4}}))
    assert main(["import", str(path)]) == 2
    assert "simlab record --block 4" in capsys.readouterr().err
    assert main(["import", str(path), "--first-of-block"]) in (0, 1)


def test_readings_that_do_not_belong_together_are_refused(
    metrics: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = map(str, metrics)
    assert main(["import", before, "--before", after]) == 2
    assert "started anew" in capsys.readouterr().err
    assert main(["import", before, after, "--before", before]) == 2
    assert "one file" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none")]) == 2
    assert "there is none" in capsys.readouterr().err
