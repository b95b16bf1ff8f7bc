"""Exported lines read by the engines' own parsers, out of their wheels."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import engine_parsers
import pytest
from eagle3_traces import write_head_trace
from engine_shapes import yaml_mapping
from engine_wheels import wheel_files
from random_spark import make_spark
from synthetic_traces import write_synthetic_trace
from tiny_models import make_target, write_prompts

from simlab.real_runner.checkpoints.contents import packaged_checkpoints
from simlab.studies.export.export import export
from simlab.studies.record import record

HEAD_POLICIES = ("chain:length=3", "eagle3:budget=6,beam=3,top_k=3,steps=4")


def parsed(engine: str, lines: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    files = wheel_files(folder, engine_parsers.WHEELS[engine], ("",))
    run = [sys.executable, engine_parsers.__file__, engine, str(files)]
    done = subprocess.run(run, check=True, capture_output=True, text=True, input=json.dumps(lines))
    values: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("[{") :])
    return values


def lines_of(engine: str, folder: Path) -> list[list[str]]:
    """The words behind the program, of all lines to paste, of block drafters' chains and of a head's trees."""
    trace = write_synthetic_trace(folder / "trace", num_sequences=24)
    head = write_head_trace(folder / "head")
    made = [export(engine, typed, trace=trace) for typed in ("chain", "chain:length=3")]
    target = make_target(folder / "target")
    spark = record(
        str(target),
        str(make_spark(folder / "spark", "vanilla")),
        out=folder / "spark-trace",
        prompts=write_prompts(folder / "prompts.jsonl", 4),
        max_new_tokens=16,
    )
    made += [export(engine, typed, trace=spark) for typed in ("chain", "chain:length=3")]
    made += [
        export(engine, typed, trace=head) for typed in HEAD_POLICIES if engine == "sglang" or "eagle3" not in typed
    ]
    words = [shlex.split(line) for one in made for note in one.notes for line in note.splitlines()]
    starts = {"sglang": "sglang.launch_server", "vllm": "serve"}[engine]
    return [line[line.index(starts) + 1 :] for line in words if starts in line and ("--" in " ".join(line))]


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_sglang_s_parser_reads_its_lines(tmp_path: Path) -> None:
    lines = lines_of("sglang", tmp_path)
    assert len(lines) >= 6
    for words, read in zip(lines, parsed("sglang", lines, tmp_path / "wheels"), strict=True):
        given = dict(zip(words[::2], words[1::2], strict=True))
        assert {name: str(read[name.strip("-").replace("-", "_")]) for name in given} == given


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_vllm_s_parser_reads_its_lines(tmp_path: Path) -> None:
    lines = lines_of("vllm", tmp_path)
    assert len(lines) >= 5
    # The model of `vllm serve` comes first, without a name.
    for words, read in zip(
        lines, parsed("vllm", [["--model", *line] for line in lines], tmp_path / "wheels"), strict=True
    ):
        assert read["model"] == words[0]
        assert read["speculative_config"] == json.loads(words[words.index("--speculative-config") + 1])
        assert set(read["speculative_config"]) <= set(read["fields"])


_READ = """
import json, sys
from aisimulate.config.engine import SchemeSpeculationConfig
print(json.dumps([SchemeSpeculationConfig(**one).model_dump() for one in json.load(sys.stdin)]))
"""


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_aisimulate_reads_its_settings(tmp_path: Path) -> None:
    """A drafter that is named is looked for on the Hub, so a folder stands in its place."""
    files = wheel_files(tmp_path, ("aisimulate==0.13.0.dev202610270000000085",), ("aisimulate",))
    drafter = {"draft_model_path": str(packaged_checkpoints()["dflash-smollm2-135m"])}
    made = [export("aisimulate", typed) for typed in ("chain", "chain:length=3")]
    settings = [yaml_mapping(one.text)["speculation"] | drafter for one in made]
    done = subprocess.run(
        [sys.executable, "-c", _READ],
        check=True,
        capture_output=True,
        text=True,
        input=json.dumps(settings),
        env=os.environ | {"PYTHONPATH": str(files)},
    )
    for given, read in zip(settings, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert {name: read[name] for name in given} == given
