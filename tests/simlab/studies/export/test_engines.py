"""Exports for serving engines, held against what the engines accept and against rounds counted one by one."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from eagle3_traces import write_head_trace
from engine_shapes import (
    VLLM_READS,
    check_edge_llm,
    check_sglang,
    check_sglang_environment,
    check_sglang_head,
    check_speculation_profile,
    check_tensorrt_llm,
    check_tensorrt_llm_head,
    check_vllm_load_test,
    tensorrt_llm_lookup,
    vllm_lookup,
    yaml_mapping,
)
from places import DOCS
from signed_files import signed
from study_results import refused, rows_of, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.analysis.export.edge_llm import edge_llm_settings
from simlab.analysis.export.engine_settings import (
    MODELOPT,
    READ_ON,
    SGLANG,
    TENSORRT_LLM,
    VLLM,
    EngineSource,
    ExportedPolicy,
    head_shape,
)
from simlab.errors import SimlabError
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.export.export import ExportedFile, export
from simlab.traces.reader import open_trace

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}
CHAINS = ("chain", "chain:length=3")
TREES = ("ddtree:budget=16", "eagle2-beam:budget=12,beam=3,depth=4", "adaflash")
POLICIES = (*CHAINS, *TREES)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("exports") / "trace", num_sequences=24, length=40)


def exported(trace: Path, file_format: str, policy: str, **more: object) -> dict[str, Any]:
    """What an export in JSON holds."""
    value: dict[str, Any] = json.loads(export(file_format, policy, trace=trace, **more).text)  # type: ignore[arg-type]
    return value


def tensorrt_of(trace: Path, policy: str, **more: object) -> dict[str, Any]:
    """The speculation of an export for TensorRT-LLM."""
    made = export("tensorrt-llm", policy, trace=trace, **more)  # type: ignore[arg-type]
    speculation: dict[str, Any] = yaml_mapping(made.text)["speculative_config"]
    return speculation


def said(made: ExportedFile) -> list[str]:
    """The lines that stand beside an export."""
    return "\n".join(made.notes).splitlines()


def committed_per_round(trace: Path, typed: str) -> list[int]:
    """Of every round of every text, one by one."""
    (policy,), opened = parse_policies([typed]), open_trace(trace)
    texts = opened.recorded("synthetic", range(len(opened.sequences())))
    return [each.num_committed for recorded in texts for each in rounds(policy.policy, recorded)]


@pytest.mark.parametrize("typed", POLICIES)
def test_rates_and_acceptance_length_are_those_of_the_rounds(typed: str, trace: Path) -> None:
    value, lengths = exported(trace, "vllm", typed), committed_per_round(trace, typed)
    check_vllm_load_test(value["load_test"])
    rates = value["load_test"]["synthetic_acceptance_rates"]
    for index, rate in enumerate(rates):
        assert rate == sum(length >= index + 2 for length in lengths) / len(lengths)
    mean = sum(lengths) / len(lengths)
    assert 1 + sum(rates) == pytest.approx(mean, rel=1e-14)
    row = rows_of(simlab.replay(trace, [typed]))[typed]
    for name in ("acceptance_length", "acceptance_length_macro", "rounds", "committed", "clipped"):
        assert value["simlab"][name] == row[name]
    assert value["simlab"]["clipped"] > 0
    for name in ("acceptance_length_ci_low", "acceptance_length_ci_high"):
        assert value["simlab"][name] == pytest.approx(row[name])
    # The other engines simulate the same length; what they cannot run is said in one sentence, and checked by field.
    environment = {}
    for name, engine in ENGINES.items():
        made = export(name, typed, trace=trace)
        environment[name], _ = launched(said(made), "load test")
        last = said(made)[-1]
        assert last.startswith(f"{engine} cannot run {typed}: ") == (typed in TREES)
        assert typed in CHAINS or (last.count(". ") == 0 and last in made.text)
        assert any(line.startswith("To serve") for line in said(made)) == (typed in CHAINS)
        if name == "sglang":
            check_sglang(yaml_mapping(made.text), block_size=8)
        elif name == "tensorrt-llm":
            check_tensorrt_llm(yaml_mapping(made.text)["speculative_config"])
        else:
            assert ("serve" in value) == (typed in CHAINS)
    assert check_sglang_environment(environment["sglang"]) == pytest.approx(mean, rel=1e-14)
    forced = environment["tensorrt-llm"]["TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"]
    assert 1 + float(forced) == pytest.approx(mean, rel=1e-14)
    assert environment["vllm"] == {}
    profile = exported(trace, "modelopt", typed)
    check_speculation_profile(profile)
    assert (profile["experimental"], profile["measured"]) == (True, False)
    assert "predicted" in profile["measurement_conditions"]["producer"]
    assert ("note" in profile["measurement_conditions"]) == (typed in TREES)
    assert profile["schema_commit"] in MODELOPT.files.values()
    steps = sum(one["num_steps"] for one in profile["per_category"].values())
    assert steps == sum(profile["acceptance_length_histogram"].values())


def launched(lines: Sequence[str], what: str) -> tuple[dict[str, str], list[str]]:
    """Environment and words of the line below the one that announces it, as a shell takes them apart."""
    (line,) = [line for before, line in pairwise(lines) if before.startswith(f"To {what}")]
    words = shlex.split(line)
    program = next(index for index, word in enumerate(words) if "=" not in word)
    shown = 'vllm() { printf \'%s\\n\' "$@"; }; python() { vllm "$@"; }; trtllm_serve() { vllm "$@"; }; '
    line = line.replace("trtllm-serve ", "trtllm_serve ")
    printed = subprocess.run(["sh", "-c", shown + line], check=True, capture_output=True, text=True, env=os.environ)
    assert printed.stdout.splitlines() == words[program + 1 :]
    return dict(word.split("=", 1) for word in words[:program]), words[program:]


def flags(words: Sequence[str]) -> dict[str, Any]:
    """The flags of a command, whole numbers as such."""
    pairs = list(zip(words[::2], words[1::2], strict=True))
    assert all(name.startswith("--") for name, _ in pairs)
    return {name[2:]: int(value) if value.isdigit() else value for name, value in pairs}


@pytest.mark.parametrize(("typed", "length"), [("chain", 7), ("chain:length=3", 3), ("chain:length=1", 1)])
def test_a_chain_ends_with_a_line_that_serves_it(typed: str, length: int, trace: Path, tmp_path: Path) -> None:
    served = {}
    for name, out in (("vllm", "v.json"), ("sglang", "s.yaml"), ("tensorrt-llm", "a b.yaml")):
        made = export(name, typed, trace=trace, out=tmp_path / out)
        environment, words = launched(said(made), "serve")
        assert (environment, said(made)[-1]) == ({}, shlex.join(words))
        assert sum(f"first tokens of a block of {8}" in line for line in said(made)) == (length < 7)
        served[name] = made.text, words
    text, words = served["vllm"]
    assert (words[:2], words[3]) == (["vllm", "serve"], "--speculative-config")
    file, config = json.loads(text), json.loads(words[4])
    assert set(config) <= VLLM_READS
    assert (config["method"], config["num_speculative_tokens"]) == ("dflash", length)
    assert (config, list(file)[-1], file["commands"]["serve"]) == (file["serve"], "commands", shlex.join(words))
    text, words = served["sglang"]
    assert words[:3] == ["python", "-m", "sglang.launch_server"]
    assert flags(words[3:]) == yaml_mapping(text)
    assert check_sglang(yaml_mapping(text), block_size=8) == length
    assert text.splitlines()[-1] == f"# {shlex.join(words)}"
    text, words = served["tensorrt-llm"]
    assert (words[0], words[2], words[3]) == ("trtllm-serve", "--extra_llm_api_options", str(tmp_path / "a b.yaml"))
    assert list(yaml_mapping(text)) == ["speculative_config"]
    check_tensorrt_llm(yaml_mapping(text)["speculative_config"])
    assert yaml_mapping(text)["speculative_config"]["max_draft_len"] == length


def test_a_wider_load_test_has_rates_of_0_at_its_end(trace: Path) -> None:
    narrow, wide = (
        exported(trace, "vllm", "ddtree:budget=16", draft_tokens=number)["load_test"] for number in (None, 16)
    )
    check_vllm_load_test(wide)
    number = narrow["num_speculative_tokens"]
    assert (number, wide["num_speculative_tokens"]) == (7, 16)
    assert wide["synthetic_acceptance_rates"] == narrow["synthetic_acceptance_rates"] + [0.0] * (16 - number)


def test_the_same_choice_reaches_every_engine(trace: Path, served_costs: dict[int, Path]) -> None:
    """The fastest chain by replay at each batch size; the prices make it matter, and end in plain decoding."""
    best = {}
    for batch, path in served_costs.items():
        rows = rows_of(simlab.replay(trace, ["chain:length=1..7"], cost=path))
        chains = {f"chain:length={length}": length for length in range(1, 8)} | {"autoregressive": 0}
        best[batch] = chains[max(chains, key=lambda label: rows[label]["tokens_per_s"])]
    assert best[64] == 0
    assert all(low > high for low, high in pairwise(dict.fromkeys(best.values())))
    costs = list(served_costs.values())
    vllm, tensorrt = exported(trace, "vllm", "chain", cost=costs), tensorrt_of(trace, "chain", cost=costs)
    for batch in range(1, 65):
        wanted = best[max(priced for priced in best if priced <= batch)]
        assert vllm_lookup(vllm["serve"], batch) == wanted
        assert tensorrt_llm_lookup(tensorrt, batch) == wanted
    assert vllm["serve"]["num_speculative_tokens"] == tensorrt["max_draft_len"] == best[1]
    assert [row["batch"] for row in vllm["simlab"]["batches"]] == list(best)
    assert not any(row["what_if"] for row in vllm["simlab"]["batches"])
    assert all(row["num_drafted"] in row["not_told_apart"] for row in vllm["simlab"]["batches"])


def test_a_what_if_says_so_and_is_that_of_replay(trace: Path, served_costs: dict[int, Path]) -> None:
    """A batch size that was measured goes before one that is worked out."""
    cost = served_costs[1]
    made = export("vllm", "chain", trace=trace, cost=[cost], batch=[1, 2, 8])
    assert "WHAT IF, hypothetical, not measured: the latencies of batch sizes 2, 8" in "\n".join(made.notes)
    batches = json.loads(made.text)["simlab"]["batches"]
    assert [(row["batch"], row["what_if"]) for row in batches] == [(1, False), (2, True), (8, True)]
    rows = value_of(simlab.replay(trace, ["chain:length=1..7"], cost=cost, what_if=["batch=8"]))["rows"]
    rows = [row for row in rows if row["cost_id"] == batches[2]["cost_id"] and row["name"] in ("ar", "chain")]
    best = max(rows, key=lambda row: row["tokens_per_s"])
    assert batches[2]["tokens_per_s_of_each_text"] == pytest.approx(best["tokens_per_s"])
    for name in ("speedup", "speedup_ci_low", "speedup_ci_high"):
        assert batches[2][name] == pytest.approx(best[name])
    both = exported(trace, "vllm", "chain", cost=[cost, served_costs[4]], batch=[1, 4, 5])["simlab"]["batches"]
    assert [(row["batch"], row["what_if"]) for row in both] == [(1, False), (4, False), (5, True)]


def test_where_there_is_no_choice_by_batch_size_there_is_no_table(trace: Path, served_costs: dict[int, Path]) -> None:
    """One batch size without prices of others, or a tree."""
    value = exported(trace, "vllm", "chain", cost=[served_costs[1]])
    assert "num_speculative_tokens_per_batch_size" not in value["serve"]
    assert any("--batch" in note and "--batch N" in note for note in value["simlab"]["notes"])
    text = export("tensorrt-llm", "chain:length=5", trace=trace).text
    assert "draft_len_schedule" not in yaml_mapping(text)["speculative_config"]
    assert "No draft_len_schedule" in text
    for engine in ("vllm", "tensorrt-llm"):
        tree, costs = "eagle2-beam:budget=8,beam=3,depth=4", [served_costs[1], served_costs[4]]
        text = export(engine, tree, trace=trace, cost=costs).text
        assert "left aside" in text
        assert "per_batch_size" not in text
        assert "draft_len_schedule" not in text


@pytest.mark.parametrize(
    ("file_format", "policy", "named", "words"),
    [
        ("vllm", "chain", {"batch": [1, 2]}, "No speeds"),
        ("vllm", "chain", {"cost": [4], "batch": [8]}, "none of one text"),
        ("tensorrt-llm", "chain", {"cost": [64], "batch": [64]}, "0 (batch 64)"),
    ],
)
def test_what_cannot_be_done_is_refused(
    file_format: str,
    policy: str,
    named: dict[str, Any],
    words: str,
    trace: Path,
    served_costs: dict[int, Path],
) -> None:
    cost = [served_costs[batch] for batch in named.get("cost", ())]
    assert words in refused(export, file_format, policy, trace=trace, **{**named, "cost": cost})


@pytest.mark.parametrize(
    ("name", "source"), [("vllm", VLLM), ("sglang", SGLANG), ("tensorrt-llm", TENSORRT_LLM), ("modelopt", MODELOPT)]
)
def test_files_and_page_say_where_the_fields_were_read(name: str, source: EngineSource, trace: Path) -> None:
    page = (DOCS / "how_to" / "export.md").read_text(encoding="utf-8")
    text = export(name, "chain", trace=trace).text
    for path, commit in source.files.items():
        assert commit in text
        assert f"{path}` at `{commit[:12]}" in page
    assert READ_ON in text
    assert READ_ON in page
    assert export(name, "chain", trace=trace).text == text


@pytest.mark.parametrize("name", ["sglang", "tensorrt-llm"])
def test_names_of_others_end_no_comment_and_steer_no_terminal(name: str, trace: Path, tmp_path: Path) -> None:
    shutil.copytree(trace, tmp_path / "trace")
    manifest = tmp_path / "trace/manifest.json"
    values = json.loads(manifest.read_text())
    values["target"]["name"] = "a\x1b[31m\u202eb\ncommand: evil"
    manifest.write_text(json.dumps(signed(values)))
    text = export(name, "chain", trace=tmp_path / "trace").text
    assert not {"\x1b", "\u202e"} & set(text)
    assert "[U+202E]" in text
    assert "command" not in yaml_mapping(text)


@pytest.fixture(scope="module")
def head_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_trace(tmp_path_factory.mktemp("heads") / "trace")


@pytest.mark.parametrize(
    ("policy", "shape"),
    [
        ("chain", (5, 1, 5)),
        ("chain:length=3", (3, 1, 3)),
        ("chain:length=9", (5, 1, 5)),
        ("eagle3:budget=6,beam=3,top_k=3,steps=4", (5, 3, 6)),
        ("eagle3:budget=12,beam=3,top_k=3,steps=1", (2, 3, 12)),
    ],
)
def test_sglang_takes_a_head_s_steps_width_and_size(policy: str, shape: tuple[int, int, int], head_trace: Path) -> None:
    made = export("sglang", policy, trace=head_trace)
    assert check_sglang_head(yaml_mapping(made.text)) == shape
    words = shlex.split(made.notes[-1])
    assert words[:3] == ["python", "-m", "sglang.launch_server"]
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert (flags["--speculative-num-steps"], flags["--speculative-eagle-topk"]) == (str(shape[0]), str(shape[1]))
    assert flags["--speculative-num-draft-tokens"] == str(shape[2] + 1)
    assert "block of" not in made.text


@pytest.mark.parametrize(
    ("policy", "shape"),
    [
        ("chain:length=3", (3, 1, 3)),
        ("eagle3:budget=6,beam=3,top_k=3,steps=4", (5, 3, 6)),
        ("eagle3:budget=15,beam=3,top_k=3,steps=4", (5, 3, 15)),
    ],
)
def test_nvidias_engines_take_a_head_s_shape(policy: str, shape: tuple[int, int, int], head_trace: Path) -> None:
    """One counts the root in its nodes, the other does not."""
    made = export("tensorrt-llm", policy, trace=head_trace)
    assert check_tensorrt_llm_head(yaml_mapping(made.text)["speculative_config"]) == shape
    assert shlex.split(made.notes[-1])[:1] == ["trtllm-serve"]
    edge = exported(head_trace, "tensorrt-edge-llm", policy)
    assert check_edge_llm(edge["flags"]) == (shape[1], shape[0], shape[2] + 1)
    assert set(edge["commands"]) == {"build_base", "build_draft", "serve"}


@pytest.mark.parametrize(
    ("policy", "flags"),
    [
        ("chain", (1, 1, 8, 8)),
        ("chain:length=3", (1, 1, 4, 4)),
        ("edge-llm:budget=31,top_k=8", (8, 1, 32, 8)),
        ("edge-llm:budget=127,top_k=7", (7, 1, 128, 8)),
    ],
)
def test_edge_llm_takes_chains_and_its_own_trees(policy: str, flags: tuple[int, ...]) -> None:
    """On the packaged trace, of a block of 8; the last line runs it."""
    made = export("tensorrt-edge-llm", policy, limit=2)
    value = json.loads(made.text)
    assert check_edge_llm(value["flags"]) == flags[:3]
    assert value["flags"]["dflashBlockSize"] == flags[3]
    words = shlex.split(made.notes[-1])
    assert words[0] == "llm_inference"
    given = words[words.index("--specDecode") + 1 :]
    assert dict(zip(given[::2], map(int, given[1::2]), strict=True)) == {f"--{k}": v for k, v in value["flags"].items()}
    assert ("--dflash-tree-base" in value["commands"]["export_base"]) == (flags[0] > 1)
    assert f"--maxVerifyTreeSize {flags[2]} " in value["commands"]["build_base"]
    assert f"--maxDraftTreeSize {flags[3]} " in value["commands"]["build_draft"]


def test_edge_llm_builds_no_tree_above_temperature_0_and_none_of_a_long_block() -> None:
    (policy,) = parse_policies(["edge-llm:budget=31,top_k=8"])
    one = ExportedPolicy(policy, None, "target", "drafter", 7, 8)  # type: ignore[arg-type]
    assert edge_llm_settings(one, 0.0)["specVerifySize"] == 32
    with pytest.raises(SimlabError, match="trees are greedy, and the trace was recorded at temperature 0.7"):
        edge_llm_settings(one, 0.7)
    with pytest.raises(SimlabError, match="at most 32 tokens, and the drafter looks 33 ahead"):
        edge_llm_settings(replace(one, depth=33), 0.0)


def test_vllm_drafts_chains_of_a_head_and_no_trees(head_trace: Path, trace: Path) -> None:
    chain = exported(head_trace, "vllm", "chain:length=3")
    assert chain["serve"] == {"method": "eagle3", "model": "synthetic", "num_speculative_tokens": 3}
    tree = exported(head_trace, "vllm", "eagle3:budget=6,beam=3,top_k=3,steps=4")
    assert "serve" not in tree
    assert tree["load_test"]["method"] == "eagle3"
    assert tree["load_test"]["num_speculative_tokens"] == 5
    assert any("it drafts chains only" in note for note in tree["simlab"]["notes"])
    assert exported(trace, "vllm", "chain")["serve"]["method"] == "dflash"


@pytest.mark.parametrize(
    ("file_format", "policy", "words"),
    [
        ("sglang", "ddtree:budget=4", "no engine drafts ddtree:budget=4 with an EAGLE-3 head"),
        ("vllm", "adaflash", "no engine drafts adaflash"),
        (
            "modelopt",
            "chain",
            "sglang, tensorrt-llm, tensorrt-edge-llm, aisimulate, not for modelopt",
        ),
        ("tensorrt-llm", "eagle3:budget=16,beam=3,top_k=3,steps=4", "here 5 to 15, and eagle3"),
        ("tensorrt-llm", "eagle3:budget=4,beam=3,top_k=3,steps=4", "drafts 4; take such a budget"),
    ],
)
def test_what_no_engine_drafts_with_a_head_is_refused(
    file_format: str, policy: str, words: str, head_trace: Path
) -> None:
    assert words in refused(export, file_format, policy, trace=head_trace)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("eagle3:budget=8,beam=2,top_k=4,steps=3", "has beam 2 and top_k 4; take equal ones"),
        ("eagle3:budget=2,beam=1,top_k=1,steps=3", "as long as its 4 steps"),
    ],
)
def test_shapes_that_sglang_cannot_say_are_refused(policy: str, words: str) -> None:
    with pytest.raises(SimlabError, match=words):
        head_shape(parse_policies([policy])[0], 7)
