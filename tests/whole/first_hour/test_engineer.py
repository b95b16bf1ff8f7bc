"""A serving engineer's first hour: own timings in the shapes that people have, metrics of two engines, a log.

Nothing ends in an error, in a label that nobody checked, or in a sentence against its own table.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from commands import output_of, ran, refusal_of
from places import TESTS

PASSES = ((1, 7.81), (2, 7.86), (4, 7.95), (8, 8.14), (16, 8.6), (32, 9.4), (64, 11.2))
"""Tokens of a pass and its milliseconds, as of a GPU."""

CSV, BATCHES, JSON_LIST, WITH_DRAFT = "a csv of ms", "two batches", "a list of json", "a csv with a column of drafts"
SHAPES = (CSV, BATCHES, JSON_LIST, WITH_DRAFT)


def written(folder: Path, shape: str) -> tuple[Path, list[str]]:
    """The file of a shape, and what else `simlab import` is told."""
    if shape == JSON_LIST:
        rows = [{"nodes": n, "context": 1024, "seconds": ms / 1000} for n, ms in PASSES]
        (folder / "t.json").write_text(json.dumps(rows))
        return folder / "t.json", ["--counts", "root-included"]
    heads = {
        CSV: "num_tokens,latency_ms",
        BATCHES: "batch_size,num_tokens,context_len,latency_ms",
        WITH_DRAFT: "Num Tokens,Time (us),draft_us,gpu",
    }
    lines = {
        CSV: [f"{n},{ms}" for n, ms in PASSES],
        BATCHES: [
            f"{b},{n},{c},{ms + 0.02 * b * n + c / 4e3}" for b in (1, 8) for n, ms in PASSES for c in (128, 1024)
        ],
        WITH_DRAFT: [f"{n},{1000 * ms},{1100 + n},H100" for n, ms in PASSES],
    }
    path = folder / "t.csv"
    path.write_text("\n".join([heads[shape], *lines[shape]]) + "\n")
    return path, []


def imported(folder: Path, shape: str) -> list[Path]:
    """The cost files that are made of the timings of a shape."""
    path, more = written(folder, shape)
    said = output_of("import", path, *more, "--out", folder / "mine.json")
    assert "not stated" not in said or "draft, select, commit" in said
    return [Path(found) for found in re.findall(r"^Cost file: (\S+)", said, re.MULTILINE)]


@pytest.mark.parametrize("shape", SHAPES)
def test_own_timings_of_any_shape_price_a_replay(shape: str, tmp_path: Path) -> None:
    costs = imported(tmp_path, shape)
    assert len(costs) == (2 if shape == BATCHES else 1)
    said = " ".join(
        output_of("replay", "-p", "caddtree", "-p", "ddtree:budget=8/60..70", "--limit", 3, "--cost", costs[0]).split()
    )
    assert "MODELS NOT STATED" in said
    assert "It is not stated of which models the timings are." in said
    assert f"{costs[0]} ends at 63 drafted tokens" in said
    assert "caddtree:budget=63" in said
    assert ("nobody timed draft" in said) == (shape != WITH_DRAFT)


@pytest.mark.parametrize(
    "typed",
    [
        "report --limit 3 --texts 1",
        "study curves --limit 2",
        "study scoring --limit 2",
        pytest.param("study engine-rules --limit 2", marks=pytest.mark.thorough),
        pytest.param("optimize", marks=pytest.mark.thorough),
    ],
)
def test_own_timings_go_through_every_command(typed: str, tmp_path: Path) -> None:
    (one,) = imported(tmp_path, CSV)
    out = ["--out", tmp_path / "r.html"] if typed.startswith("report") else []
    said = output_of(*typed.split(), "--cost", one, *out)
    assert "match the models" not in said
    if out:
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert "models not stated" in page
        assert "match the models" not in page


@pytest.mark.parametrize(
    "typed",
    [
        "replay -p ddtree:budget=8 --limit 9",
        "optimize -p chain:length=2/3",
        "study curves --limit 2 --budget 8",
        "study scoring --limit 2 --nodes 8 -p ddtree:budget=8",
        "advise --limit 9 --batch 1",
        pytest.param("study engine-rules --limit 2 --batch 1", marks=pytest.mark.thorough),
    ],
)
def test_what_timings_lack_and_leave_out_stands_in_words_and_in_json(typed: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("num_tokens,context,seconds\n1,64,0.02\n33,64,0.03\n1,200,0.021\n33,200,0.031\n")
    output_of("import", tmp_path / "t.csv", "--out", tmp_path / "cost.json")
    words = [*typed.split(), "--cost", tmp_path / "cost.json"]
    notes = ["Prompts left out: 23 of 41, which have more than 200 tokens", "nobody timed draft, select, commit"]
    said = " ".join(output_of(*words).split())
    written_notes = " ".join(json.loads(output_of(*words, "--json"))["notes"])
    assert [note for note in notes if note not in written_notes] == []
    assert notes[0] in said
    assert notes[1] in said or "not timed, so free here: draft, select, commit" in said


@pytest.mark.parametrize("shape", [CSV, BATCHES])
def test_advice_of_own_timings_is_one_line_a_batch(shape: str, tmp_path: Path) -> None:
    costs = imported(tmp_path, shape)
    typed = [word for cost in costs for word in ("--cost", cost)]
    batches = ["--batch", "1,8"] if shape == BATCHES else []
    said = output_of("advise", *typed, *batches)
    assert re.search(r"^1 +measured +(draft nothing|chain of \d+|tree of \d+)", said, re.MULTILINE)
    assert "It is not stated of which models the timings are." in " ".join(said.split())
    config = next(line for line in said.splitlines() if line.startswith("--speculative-config"))
    assert json.loads(shlex.split(config)[1])["num_speculative_tokens"] >= 1
    assert "winner" not in said


def test_what_was_never_timed_has_no_speedup(tmp_path: Path) -> None:
    bench = TESTS / "data" / "engines" / "vllm_bench_serve.json"
    output_of("import", bench, "--out", tmp_path / "bench.json")
    said = output_of("replay", "-p", "chain", "--cost", tmp_path / "bench.json", "--limit", 3)
    (chain,) = [line.split() for line in said.splitlines() if line.startswith("chain ")]
    assert chain[-2:] == ["-", "-"]
    assert "No speedup: autoregressive decoding was not timed." in " ".join(said.split())
    assert "has no latency of autoregressive decoding" in refusal_of("advise", "--cost", tmp_path / "bench.json")
    report = output_of("report", "--limit", 3, "--texts", 0, "--cost", tmp_path / "bench.json", "--out", tmp_path / "r")
    assert "times as fast as autoregressive decoding" not in report


def test_milliseconds_typed_as_seconds_are_asked_about(tmp_path: Path) -> None:
    path, out = tmp_path / "t.csv", tmp_path / "x.json"
    path.write_text("\n".join(["num_tokens,seconds", *(f"{n},{ms}" for n, ms in PASSES)]))
    said = refusal_of("import", path, "--out", out)
    assert "the fastest pass in" in said
    assert "--unit ms" in said
    assert "Cost file" in output_of("import", path, "--unit", "ms", "--out", out)
    path.write_text("\n".join(["num_tokens,latency_ms", *(f"{n},{ms}" for n, ms in PASSES)]))
    assert "did you mean 0.0012" in refusal_of("import", path, "--draft-s", 1.2, "--out", tmp_path / "y.json")


LOG = """(APIServer pid=1) INFO 11-26 10:01:01 [api_server.py:1] Started server process [1]
(APIServer pid=1) INFO 11-26 10:01:11 [loggers.py:123] Engine 000: Avg prompt throughput: 10.1 tokens/s, Running: 1 reqs
(APIServer pid=1) INFO 11-26 10:01:11 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.32, Accepted \
throughput: 50.20 tokens/s, Drafted throughput: 266.00 tokens/s, Accepted: 502 tokens, Drafted: 2660 tokens, \
Per-position acceptance rate: 0.600, 0.326, 0.189, 0.103, 0.058, 0.029, 0.016, Avg Draft acceptance rate: 18.9%
"""

VLLM = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 7000.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1190.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 2230.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",model_name="m",finished_reason="stop"} 30.0
"""

SGLANG = """# TYPE sglang:spec_verify_calls_total counter
sglang:spec_verify_calls_total{model_name="m"} 1000.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 2230.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m",is_streaming="false"} 30.0
"""


@pytest.mark.parametrize(("name", "content"), [("vllm.log", LOG), ("vllm.txt", VLLM), ("sglang.txt", SGLANG)])
def test_what_engines_count_is_held_against_a_trace(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    code, out, err = ran("import", tmp_path / name)
    assert code in (0, 1), err
    assert "acceptance length" in out
    assert "Traceback" not in err


def test_a_log_of_means_alone_is_refused_with_what_to_read(tmp_path: Path) -> None:
    (tmp_path / "sglang.log").write_text("[2026-11-26] Decode batch. #running-req: 1, accept len: 3.21, gen: 88.0\n")
    assert "read the server's /metrics instead" in refusal_of("import", tmp_path / "sglang.log")
    (tmp_path / "odd.log").write_text(LOG.replace("Drafted: 2660", "Drafted: 2661"))
    assert "are no rounds of 7" in refusal_of("import", tmp_path / "odd.log")
