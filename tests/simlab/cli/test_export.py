"""``simlab export`` for serving engines, from end to end, held against what the engines accept."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, ran, refusal_of
from engine_shapes import (
    VLLM_READS,
    check_sglang,
    check_sglang_environment,
    check_speculation_profile,
    check_tensorrt_llm,
    check_vllm_load_test,
    tensorrt_llm_lookup,
    vllm_lookup,
    yaml_mapping,
)
from made_up_costs import filled
from places import DOCS

from simlab.analysis.export.engine_settings import MODELOPT, READ_ON, SGLANG, TENSORRT_LLM, VLLM, EngineSource
from simlab.cli.main import main
from simlab.cost import PLAIN
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.reader import open_trace
from simlab.traces.synthetic import write_synthetic_trace

Capture = pytest.CaptureFixture[str]
ENGINES = ("vllm", "sglang", "tensorrt-llm")
CHAINS = ("chain", "chain:length=3")
TREES = ("ddtree:budget=16", "eagle2-beam:budget=12,beam=3,depth=4", "adaflash")
POLICIES = ("chain", "chain:length=3", "ddtree:budget=16", "eagle2-beam:budget=12,beam=3,depth=4", "adaflash")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("exports") / "trace", num_sequences=24, length=40)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Made-up prices of 1, 4, 16 and 64 texts at a time: each drafted token costs more, the more texts there are."""
    folder, file = tmp_path_factory.mktemp("prices"), filled()
    found = {}
    for batch, each_s in ((1, 0.0), (4, 0.002), (16, 0.006), (64, 0.03)):
        samples = {
            cell: tuple(0.012 + each_s * cell[1] if cell[0] in ("verify", PLAIN) else 0.0001 for _ in values)
            for cell, values in file.samples.items()
        }
        found[batch] = folder / f"of_{batch}.json"
        write_cost_file(found[batch], replace(file, batch=batch, samples=samples))
    return found


@pytest.fixture
def exported(trace: Path) -> Callable[..., str]:
    """The text of an export."""

    def run(*arguments: str) -> str:
        return output_of("export", "--trace", trace, *arguments)

    return run


@pytest.fixture
def said(trace: Path) -> Callable[..., list[str]]:
    """The lines that stand beside an export, the last one last."""

    def run(*arguments: str) -> list[str]:
        code, _, err = ran("export", "--trace", trace, *arguments)
        assert code == 0
        return err.splitlines()

    return run


def replayed(trace: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of ``simlab replay``."""
    found: list[dict[str, Any]] = json_of("replay", "--trace", trace, "--json", "--threads", "1", *arguments)["rows"]
    return found


def committed_per_round(trace: Path, typed: str) -> list[int]:
    """Of every round of every text, one by one."""
    (one,) = parse_policies([typed])
    opened = open_trace(trace)
    return [
        each.num_committed
        for recorded in opened.recorded("synthetic", range(len(opened.sequences())))
        for each in rounds(one.policy, recorded)
    ]


@pytest.mark.parametrize("typed", POLICIES)
def test_rates_and_acceptance_length_are_those_of_the_rounds(
    typed: str, trace: Path, exported: Callable[..., str]
) -> None:
    value = json.loads(exported("--format", "vllm", "-p", typed))
    check_vllm_load_test(value["load_test"])
    rates, lengths = value["load_test"]["synthetic_acceptance_rates"], committed_per_round(trace, typed)
    for place, rate in enumerate(rates):
        assert rate == sum(length >= place + 2 for length in lengths) / len(lengths)
    acceptance_length = sum(lengths) / len(lengths)
    assert 1 + sum(rates) == pytest.approx(acceptance_length, rel=1e-14)
    row = next(row for row in replayed(trace, "-p", typed) if row["policy"] == typed)
    names = ("acceptance_length", "acceptance_length_macro", "rounds", "committed", "clipped")
    assert [value["simlab"][name] for name in names] == [row[name] for name in names]
    assert value["simlab"]["clipped"] > 0
    ends = ("acceptance_length_ci_low", "acceptance_length_ci_high")
    assert [value["simlab"][name] for name in ends] == pytest.approx([row[name] for name in ends])


@pytest.mark.parametrize("typed", POLICIES)
def test_simulated_lengths_agree_between_engines(typed: str, said: Callable[..., list[str]], trace: Path) -> None:
    length = sum(committed_per_round(trace, typed)) / len(committed_per_round(trace, typed))
    environment = {name: launched(said("--format", name, "-p", typed), "load test")[0] for name in ENGINES}
    assert check_sglang_environment(environment["sglang"]) == pytest.approx(length, rel=1e-14)
    forced = environment["tensorrt-llm"]["TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"]
    assert 1 + float(forced) == pytest.approx(length, rel=1e-14)
    assert environment["vllm"] == {}


def launched(lines: list[str], what: str) -> tuple[dict[str, str], list[str]]:
    """Environment and words of the line below the one that announces it, as a shell takes them apart."""
    (line,) = [line for before, line in pairwise(lines) if before.startswith(f"To {what}")]
    words = shlex.split(line)
    program = next(place for place, word in enumerate(words) if "=" not in word)
    shown = 'vllm() { printf \'%s\\n\' "$@"; }; python() { vllm "$@"; }; trtllm_serve() { vllm "$@"; }; '
    line = line.replace("trtllm-serve ", "trtllm_serve ")
    printed = subprocess.run(["sh", "-c", shown + line], check=True, capture_output=True, text=True, env=os.environ)
    assert printed.stdout.splitlines() == words[program + 1 :]
    return dict(word.split("=", 1) for word in words[:program]), words[program:]


def flags(words: list[str]) -> dict[str, Any]:
    """The flags of a command, whole numbers as such."""
    assert all(name.startswith("--") for name in words[::2])
    return {
        name[2:]: int(value) if value.isdigit() else value for name, value in zip(words[::2], words[1::2], strict=True)
    }


@pytest.mark.parametrize("typed", CHAINS)
def test_a_chain_ends_with_a_line_that_serves_it(typed: str, said: Callable[..., list[str]], tmp_path: Path) -> None:
    length = 3 if typed == "chain:length=3" else 7
    lines = said("--format", "vllm", "-p", typed, "--out", str(tmp_path / "v.json"))
    environment, words = launched(lines, "serve")
    assert (environment, lines[-1]) == ({}, shlex.join(words))
    assert (words[:2], words[3]) == (["vllm", "serve"], "--speculative-config")
    config = json.loads(words[4])
    assert set(config) <= VLLM_READS
    assert (config["method"], config["num_speculative_tokens"]) == ("dflash", length)
    file = json.loads((tmp_path / "v.json").read_text())
    assert config == file["serve"]
    assert list(file)[-1] == "commands"
    assert file["commands"]["serve"] == lines[-1]

    lines = said("--format", "sglang", "-p", typed, "--out", str(tmp_path / "s.yaml"))
    environment, words = launched(lines, "serve")
    assert (environment, words[:3]) == ({}, ["python", "-m", "sglang.launch_server"])
    file = yaml_mapping((tmp_path / "s.yaml").read_text())
    assert flags(words[3:]) == file
    assert check_sglang(file, block_size=8) == length
    assert (tmp_path / "s.yaml").read_text().splitlines()[-1] == f"# {lines[-1]}"

    lines = said("--format", "tensorrt-llm", "-p", typed, "--out", str(tmp_path / "a b.yaml"))
    environment, words = launched(lines, "serve")
    assert (environment, words[0], words[2]) == ({}, "trtllm-serve", "--extra_llm_api_options")
    file = yaml_mapping(Path(words[3]).read_text())
    assert list(file) == ["speculative_config"]
    check_tensorrt_llm(file["speculative_config"])
    assert file["speculative_config"]["max_draft_len"] == length
    assert lines[-1] == shlex.join(words)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("typed", TREES)
def test_what_an_engine_cannot_run_is_said_in_one_sentence(
    engine: str, typed: str, said: Callable[..., list[str]], exported: Callable[..., str]
) -> None:
    lines = said("--format", engine, "-p", typed)
    name = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}[engine]
    assert lines[-1].startswith(f"{name} cannot run {typed}: ")
    assert lines[-1].count(". ") == 0
    assert not any(line.startswith("To serve") for line in lines)
    assert launched(lines, "load test")[1]
    text = exported("--format", engine, "-p", typed)
    assert lines[-1] in text
    if engine == "vllm":
        assert "serve" not in json.loads(text)
    elif engine == "sglang":
        check_sglang(yaml_mapping(text), block_size=8)
    else:
        check_tensorrt_llm(yaml_mapping(text)["speculative_config"])


@pytest.mark.parametrize("engine", [*ENGINES, "modelopt"])
def test_a_chain_shorter_than_the_block_is_no_shorter_block(engine: str, said: Callable[..., list[str]]) -> None:
    words = "first tokens of a block of 8"
    assert sum(words in line for line in said("--format", engine, "-p", "chain:length=3")) == 1
    assert not any(words in line for line in said("--format", engine, "-p", "chain"))


def test_a_replay_is_not_measured(exported: Callable[..., str], said: Callable[..., list[str]]) -> None:
    profile = json.loads(exported("--format", "modelopt", "-p", "chain"))
    assert profile["measured"] is False
    assert "predicted" in profile["measurement_conditions"]["producer"]
    assert "serves nothing" in said("--format", "modelopt", "-p", "chain")[-1]


def test_a_policy_that_weighs_prices_names_them(
    trace: Path, costs: dict[int, Path], exported: Callable[..., str]
) -> None:
    value = json.loads(exported("--format", "vllm", "-p", "caddtree:budget=8", "--cost", str(costs[4])))["simlab"]
    row = replayed(trace, "-p", "caddtree:budget=8", "--cost", str(costs[4]))[2]
    assert (value["policy_id"], value["acceptance_length"]) == (row["policy_id"], row["acceptance_length"])
    assert list(value["artefacts"]) == ["cost"]


def test_a_wider_load_test_has_rates_of_0_at_its_end(exported: Callable[..., str]) -> None:
    narrow, wide = (
        json.loads(exported("--format", "vllm", "-p", "ddtree:budget=16", *more))["load_test"]
        for more in ((), ("--draft-tokens", "16"))
    )
    check_vllm_load_test(wide)
    number = narrow["num_speculative_tokens"]
    assert (number, wide["num_speculative_tokens"]) == (7, 16)
    assert wide["synthetic_acceptance_rates"] == narrow["synthetic_acceptance_rates"] + [0.0] * (16 - number)


def test_the_same_choice_reaches_every_engine(
    trace: Path, costs: dict[int, Path], exported: Callable[..., str]
) -> None:
    given = [word for path in costs.values() for word in ("--cost", str(path))]
    best = {}
    for batch, path in costs.items():
        rows = replayed(trace, "--cost", str(path), "-p", "chain:length=1..7")
        speeds = {
            0 if row["name"] == "ar" else json.loads(row["settings"])["length"]: row
            for row in rows[:-2]
            if row["policy"] != "chain"
        }
        best[batch] = max(speeds, key=lambda length: speeds[length]["tokens_per_s"])
    # The prices were made so that the choice matters, and ends in plain decoding.
    assert best[64] == 0
    assert all(low > high for low, high in pairwise(best.values()))
    vllm = json.loads(exported("--format", "vllm", "-p", "chain", *given))
    tensorrt = yaml_mapping(exported("--format", "tensorrt-llm", "-p", "chain", *given))["speculative_config"]
    for batch in range(1, 65):
        wanted = best[max(priced for priced in best if priced <= batch)]
        assert vllm_lookup(vllm["serve"], batch) == wanted
        assert tensorrt_llm_lookup(tensorrt, batch) == wanted
    assert vllm["serve"]["num_speculative_tokens"] == tensorrt["max_draft_len"] == best[1]
    assert [row["batch"] for row in vllm["simlab"]["batches"]] == list(best)
    assert not any(row["what_if"] for row in vllm["simlab"]["batches"])
    assert all(row["num_drafted"] in row["not_told_apart"] for row in vllm["simlab"]["batches"])


def test_a_what_if_says_so_and_is_that_of_replay(
    trace: Path, costs: dict[int, Path], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "deep" / "vllm.json"
    command = ["export", "--trace", str(trace), "--format", "vllm", "-p", "chain", "--cost", str(costs[1])]
    assert main([*command, "--batch", "2,1,8", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert str(out) in said.out
    assert "WHAT IF, hypothetical, not measured: the latencies of batch sizes 2, 8" in said.err
    rows = json.loads(out.read_text())["simlab"]["batches"]
    assert [(row["batch"], row["what_if"]) for row in rows] == [(1, False), (2, True), (8, True)]
    asked = ("--cost", str(costs[1]), "-p", "chain:length=1..7", "--what-if", "batch=8")
    found = [row for row in replayed(trace, *asked) if row["cost_id"] == rows[2]["cost_id"]]
    best = max((row for row in found if row["name"] in ("ar", "chain")), key=lambda row: row["tokens_per_s"])
    assert rows[2]["tokens_per_s_of_each_text"] == pytest.approx(best["tokens_per_s"])
    assert rows[2]["speedup"] == pytest.approx(best["speedup"])
    assert [rows[2]["speedup_ci_low"], rows[2]["speedup_ci_high"]] == pytest.approx(
        [best["speedup_ci_low"], best["speedup_ci_high"]]
    )


def test_a_measured_batch_goes_before_a_what_if(costs: dict[int, Path], exported: Callable[..., str]) -> None:
    given = ["--cost", str(costs[1]), "--cost", str(costs[4]), "--batch", "1,4,5"]
    rows = json.loads(exported("--format", "vllm", "-p", "chain", *given))["simlab"]["batches"]
    assert [(row["batch"], row["what_if"]) for row in rows] == [(1, False), (4, False), (5, True)]


def test_without_prices_of_several_batch_sizes_there_is_no_table(
    trace: Path, costs: dict[int, Path], exported: Callable[..., str]
) -> None:
    value = json.loads(exported("--format", "vllm", "-p", "chain", "--cost", str(costs[1])))
    assert "num_speculative_tokens_per_batch_size" not in value["serve"]
    assert any("--batch" in note and "--batch N" in note for note in value["simlab"]["notes"])
    text = exported("--format", "tensorrt-llm", "-p", "chain:length=5")
    assert "draft_len_schedule" not in yaml_mapping(text)["speculative_config"]
    assert "No draft_len_schedule" in text


def test_a_tree_has_no_table(costs: dict[int, Path], exported: Callable[..., str]) -> None:
    given = ["--cost", str(costs[1]), "--cost", str(costs[4])]
    for engine in ("vllm", "tensorrt-llm"):
        text = exported("--format", engine, "-p", "eagle2-beam:budget=8,beam=3,depth=4", *given)
        assert "left aside" in text
        assert "per_batch_size" not in text
        assert "draft_len_schedule" not in text


@pytest.mark.parametrize("typed", POLICIES)
def test_the_profile_has_the_documented_shape(typed: str, trace: Path, exported: Callable[..., str]) -> None:
    profile = json.loads(exported("--format", "modelopt", "-p", typed))
    check_speculation_profile(profile)
    assert profile["experimental"] is True
    assert profile["schema_commit"] in MODELOPT.files.values()
    assert sum(one["num_steps"] for one in profile["per_category"].values()) == sum(
        profile["acceptance_length_histogram"].values()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vllm"], "needs --policy"),
        (["vllm", "-p", "ar"], "drafts nothing"),
        (["vllm", "-p", "ddtree:budget=4/8"], "names 2 policies"),
        (["vllm", "-p", "chain", "--draft-tokens", "1"], "give at least as many"),
        (["sglang", "-p", "chain", "--draft-tokens", "8"], "--draft-tokens is read with --format vllm"),
        (["modelopt", "-p", "chain", "--batch", "1,2"], "--batch is read with"),
        (["sglang", "-p", "chain", "--batch", "1,2"], "--batch is read with"),
        (["vllm", "-p", "chain", "--rounds", "1"], "--rounds is read with --format conformance"),
        (["vllm", "-p", "chain", "--results", "x"], "--results is read with --format latex, markdown"),
        (["vllm", "-p", "chain", "--batch", "1,x"], "expected batch sizes such as 1,2,4,8"),
        (["vllm", "-p", "chain", "--batch", "1,2"], "No speeds"),
        (["conformance"], "needs --policy"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str], words: str, trace: Path) -> None:
    assert words in refusal_of("export", "--format", *arguments, "--trace", str(trace))


def test_prices_that_make_no_table_are_refused(trace: Path, costs: dict[int, Path], tmp_path: Path) -> None:
    start = ["--trace", str(trace), "-p", "chain", "--format"]
    assert "two cost files" in refusal_of("export", *start, "vllm", "--cost", str(costs[4]), "--cost", str(costs[4]))
    assert "none of one text" in refusal_of("export", *start, "vllm", "--cost", str(costs[4]), "--batch", "8")
    for engine in ("modelopt", "sglang"):
        assert "one latency profile" in refusal_of(
            "export", *start, engine, "--cost", str(costs[1]), "--cost", str(costs[4])
        )
    said = refusal_of("export", *start, "tensorrt-llm", "--cost", str(costs[64]), "--batch", "64")
    assert "0 (batch 64)" in said
    assert "names the folder" in refusal_of("export", *start, "vllm", "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "source"), [("vllm", VLLM), ("sglang", SGLANG), ("tensorrt-llm", TENSORRT_LLM), ("modelopt", MODELOPT)]
)
def test_files_and_page_say_where_the_fields_were_read(
    name: str, source: EngineSource, exported: Callable[..., str]
) -> None:
    page = (DOCS / "how_to" / "export.md").read_text(encoding="utf-8")
    text = exported("--format", name, "-p", "chain")
    for path, commit in source.files.items():
        assert commit in text
        assert f"{path}` at `{commit[:12]}" in page
    assert READ_ON in text
    assert READ_ON in page


def test_the_same_export_has_the_same_bytes(exported: Callable[..., str], trace: Path, tmp_path: Path) -> None:
    first = exported("--format", "vllm", "-p", "chain")
    assert main(["export", "--trace", str(trace), "--format", "vllm", "-p", "chain", "--out", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a").read_text() == first
