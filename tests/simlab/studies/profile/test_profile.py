"""``simlab profile``: what is typed arrives, a file tells how to go on, mistakes are met at the door."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_models
from commands import refusal_of

from simlab.cli.main import main
from simlab.cost import PLAIN
from simlab.errors import ModelError
from simlab.real_runner.profile.options import CONTEXTS, NODE_COUNTS, ProfileOptions
from simlab.real_runner.profile.profile import ProfileResult
from simlab.studies.profile.profile import ProfileTable, reading_text
from simlab.traces.artefacts.cost import CostFile, read_cost_file, write_cost_file
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

    def profile(options: ProfileOptions) -> ProfileResult:
        found.append(options)
        return ProfileResult(cost_file(), 1)

    monkeypatch.setattr("simlab.studies.profile.profile.run_profile", profile)
    return found


def test_without_options_the_whole_grid_of_the_models_that_come_with_simlab(calls: list[ProfileOptions]) -> None:
    assert main(["profile"]) == 0
    (options,) = calls
    assert (options.target, options.draft) == ("smollm2-135m", "dflash-smollm2-135m")
    assert (options.out, options.resume, options.threads) == (Path("runs/cost.json"), False, None)
    assert (options.node_counts, options.contexts) == (NODE_COUNTS, CONTEXTS)
    assert (options.dtype, options.device, options.repeats) == ("float32", "cpu", 9)
    assert (NODE_COUNTS[0], NODE_COUNTS[-1], CONTEXTS[0], CONTEXTS[-1]) == (0, 512, 128, 2048)


def test_what_is_typed_arrives(calls: list[ProfileOptions]) -> None:
    models = ("--target", "t", "--draft", "d", "--out", "x.json", "--dtype", "bfloat16", "--device", "cuda:1")
    grid = ("--node-counts", "9,2..4,2", "--contexts", "64,16", "--repeats", "3", "--threads", "5")
    assert main(["profile", *models, *grid, "--temperature", "0.7", "--top-p", "0.9", "--top-k", "40"]) == 0
    (options,) = calls
    text = options.text
    assert options == ProfileOptions(
        target="t",
        draft="d",
        out=Path("x.json"),
        text=text,
        node_counts=(0, 2, 3, 4, 9),
        contexts=(16, 64),
        repeats=3,
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        dtype="bfloat16",
        device="cuda:1",
        threads=5,
    )


def test_the_models_read_real_words() -> None:
    text = reading_text()
    assert text.startswith("A bakery fills 14 trays")
    assert len(text.split()) > 5_000


def test_resuming_takes_the_options_from_the_file(calls: list[ProfileOptions], tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    write_cost_file(out, cost_file())
    assert main(["profile", "--out", str(out), "--resume", "--repeats", "8"]) == 0
    (options,) = calls
    assert (options.target, options.draft, options.dtype, options.threads) == ("m", "d", "bfloat16", 3)
    assert (options.node_counts, options.contexts, options.repeats) == ((0, 7, 30), (100, 500, 3000), 8)
    assert (options.temperature, options.top_k, options.top_p, options.resume) == (0.5, 7, 0.9, True)


def test_resuming_what_is_not_there_begins(calls: list[ProfileOptions], tmp_path: Path) -> None:
    assert main(["profile", "--out", str(tmp_path / "cost.json"), "--resume"]) == 0
    assert calls[0].target == "smollm2-135m"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--node-counts", "1,x"), "expected a whole number, at least 0; got 'x'"),
        (("--node-counts", "1,,2"), "expected a whole number, at least 0; got ''"),
        (("--node-counts", "9..2"), "expected rising ranges such as 8..12; got '9..2'"),
        (("--node-counts", "0..9999999999"), "up to 1,000,000"),
        (("--contexts", "0,8"), "expected whole numbers, at least 1; got '0,8'"),
        (("--repeats", "0"), "at least 1"),
        (("--threads", "0"), "at least 1"),
        (("--temperature", "-1"), "temperature must be 0 or"),
        (("--top-p", "0"), "top_p must be above 0"),
        (("--dtype", "int8"), "int8"),
        (("--context", "8"), "there is no option"),
    ],
)
def test_a_mistake_is_one_sentence(calls: list[ProfileOptions], typed: tuple[str, ...], said: str) -> None:
    assert said in refusal_of("profile", *typed)
    assert calls == []


def test_a_file_of_another_kind_is_not_gone_on_with(calls: list[ProfileOptions], tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    out.write_text("[1]")
    assert "is no cost file" in refusal_of("profile", "--out", out, "--resume")
    assert calls == []


def test_a_refusal_is_passed_on(calls: list[ProfileOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: object) -> None:
        raise ModelError("the drafter does not fit the target")

    monkeypatch.setattr("simlab.studies.profile.profile.run_profile", refuse)
    assert refusal_of("profile") == "simlab: the drafter does not fit the target\n"


def test_an_interrupted_profile_says_how_to_go_on(
    calls: list[ProfileOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.profile.profile.run_profile", stop)
    assert main(["profile", "--out", "x.json"]) == 130
    assert "interrupted; what was measured is in x.json: add --resume to go on" in capsys.readouterr().err


def test_the_report() -> None:
    lines = ProfileTable(Path("runs/cost.json"), cost_file(), 0).text().splitlines()
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


def test_from_beginning_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, draft = tiny_models.make_pair(tmp_path)
    out = tmp_path / "new" / "cost.json"
    command = ["profile", "--target", str(target), "--draft", str(draft), "--out", str(out), "--repeats", "2"]
    command += ["--node-counts", "4", "--contexts", "16,32"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "context  plain" in printed.out
    assert "profiling: 100%" in printed.err
    assert read_cost_file(out).is_complete
    assert refusal_of(*command).endswith(
        f"{out} is there already; add --resume to go on with it, or give another --out\n"
    )
    assert main(["profile", "--out", str(out), "--resume", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["cost_id"] == read_cost_file(out).cost_id
    assert f"{out} has 2 samples of everything; nothing was measured" in printed.err
    assert main(["inspect", str(out)]) == 0
