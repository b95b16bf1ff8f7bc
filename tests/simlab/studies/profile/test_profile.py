"""Profiles: what is measured by default, how a file is gone on with, and the report of a finished one."""

from dataclasses import replace
from pathlib import Path

import pytest
from study_results import refused

from simlab.cost import PLAIN
from simlab.real_runner.profile.options import CONTEXTS, NODE_COUNTS, ProfileOptions
from simlab.real_runner.profile.profile import ProfileSweeps
from simlab.studies.profile.profile import ProfileTable, profile, reading_text
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo


def cost_file(**changes: object) -> CostFile:
    """A finished file in which everything takes as many milliseconds as it has tokens, one more for each stage."""
    model = ModelInfo("m", "", "0" * 64)
    file = CostFile(
        device="Fast CPU 9000",
        threads=3,
        system="Linux x86_64",
        target=model,
        drafter=ModelInfo("d", "", "1" * 64),
        block_size=8,
        dtype="bfloat16",
        attention="sdpa",
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        versions={"torch": "2.11.0"},
        contexts=(100, 500, 3000),
        node_counts=(0, 7, 30),
        repeats=3,
    )
    order = ("draft", "select", "verify", "commit", PLAIN)
    samples = {
        (stage, n, context): (1e-3 * (n + max(order.index(stage), context / 100)),) * 2 + (9.0,)
        for stage, n, context in file.cells()
    }
    return replace(file.with_samples(samples), **changes)  # type: ignore[arg-type]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[ProfileOptions]:
    """The options that reach a profile that measures nothing."""
    found: list[ProfileOptions] = []

    def profile(options: ProfileOptions) -> ProfileSweeps:
        found.append(options)
        return ProfileSweeps(cost_file(), 1)

    monkeypatch.setattr("simlab.studies.profile.profile.run_profile", profile)
    return found


def test_without_options_the_whole_grid_of_the_models_that_come_with_simlab(calls: list[ProfileOptions]) -> None:
    profile()
    (options,) = calls
    assert (options.target, options.draft) == ("smollm2-135m", "dflash-smollm2-135m")
    assert (options.out, options.resume, options.threads) == (Path("runs/cost.json"), False, None)
    assert (options.node_counts, options.contexts) == (NODE_COUNTS, CONTEXTS)
    assert (options.dtype, options.device, options.repeats) == ("float32", "cpu", 9)
    assert (NODE_COUNTS[0], NODE_COUNTS[-1], CONTEXTS[0], CONTEXTS[-1]) == (0, 512, 128, 2048)


def test_the_models_read_real_words() -> None:
    text = reading_text()
    assert text.startswith("A bakery fills 14 trays")
    assert len(text.split()) > 5_000


def test_a_file_says_how_it_is_gone_on_with(calls: list[ProfileOptions], tmp_path: Path) -> None:
    """One that is not there is begun, and one of another kind is left alone."""
    out = tmp_path / "cost.json"
    profile(out=out, resume=True)
    write_cost_file(out, cost_file())
    profile(out=out, resume=True, repeats=8)
    first, options = calls
    assert first.target == "smollm2-135m"
    assert (options.target, options.draft, options.dtype, options.threads) == ("m", "d", "bfloat16", 3)
    assert (options.node_counts, options.contexts, options.repeats) == ((0, 7, 30), (100, 500, 3000), 8)
    assert (options.temperature, options.top_k, options.top_p, options.resume) == (0.5, 7, 0.9, True)
    out.write_text("[1]")
    assert "is no cost file" in refused(profile, out=out, resume=True)
    assert len(calls) == 2


def test_the_report() -> None:
    table = ProfileTable(Path("runs/cost.json"), cost_file(), 0)
    lines = table.text().splitlines()
    assert lines[:3] == [
        "machine  Fast CPU 9000, threads 3, Linux x86_64, torch 2.11.0",
        "target   m, bfloat16, temperature 0.5",
        "drafter  d, block 8",
    ]
    at = lines.index("context  plain       0       7      30")
    # The price of a cell of n drafted tokens is n + max(place of the stage, context / 100) milliseconds.
    assert lines[at + 1 : at + 4] == [
        "    100   4.00    7.00   35.00  127.00",
        "    500   5.00   20.00   48.00  140.00",
        "  3,000  30.00  120.00  148.00  240.00",
    ]
    assert "Milliseconds of each stage at a context of 500:" in lines
    assert "simlab replay --cost runs/cost.json -p" in lines[-1]
    assert any("Cost file: runs/cost.json (cost " in line for line in lines)
    assert table.frame.columns == ["stage", "num_drafted", "context", "price_s"]
    assert table.frame.height == len(tuple(table.file.cells()))
    verify = table.frame.filter(stage="verify", num_drafted=7, context=500)
    assert verify["price_s"].to_list() == pytest.approx([1e-3 * (7 + 5)])
