"""What is read from the files that engines and benchmarks leave, and what is refused."""

import json
from pathlib import Path

import pytest
from places import TESTS

from simlab.analysis.engines.answers import EngineError, ServerCounters, total
from simlab.analysis.engines.files import AIPERF, PROMETHEUS, SGLANG_BENCH, VLLM_BENCH, read_metrics_file
from simlab.analysis.engines.sglang import Sglang

VLLM_METRICS = """# HELP vllm:spec_decode_num_drafts Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 9.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 87.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 40.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 5.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 72.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop"} 1.0
vllm:request_success_total{engine="0",finished_reason="length"} 2.0
"""


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_prometheus_text_of_vllm(tmp_path: Path) -> None:
    (found,) = read_metrics_file(written(tmp_path, VLLM_METRICS))
    assert (found.kind, found.engine, found.k) == (PROMETHEUS, "vLLM", 3)
    assert found.counters == ServerCounters(29, 87, 40, (25, 10, 5), 72, 3)
    assert found.counters.acceptance_length == pytest.approx(69 / 29)
    (found,) = read_metrics_file(written(tmp_path, f"{VLLM_METRICS}vllm:num_preemptions_total 2\n"))
    assert total([found.counters, found.counters]).num_preempted == 4


def test_prometheus_text_of_the_others(tmp_path: Path) -> None:
    sglang = """# TYPE sglang:spec_verify_calls_total counter
sglang:spec_verify_calls_total{model_name="m"} 50.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 130.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m",is_streaming="false"} 5.0
# TYPE sglang:spec_num_draft_tokens gauge
sglang:spec_num_draft_tokens 8.0
"""
    (found,) = read_metrics_file(written(tmp_path, sglang))
    assert (found.engine, found.k) == ("SGLang", 7)
    assert found.counters.acceptance_length == pytest.approx(125 / 50)
    trtllm = """# TYPE trtllm_generation_tokens_total counter
trtllm_generation_tokens_total 130.0
# TYPE trtllm_request_success_total counter
trtllm_request_success_total{finished_reason="stop"} 5.0
# TYPE trtllm_spec_decode_num_accepted_tokens_total counter
trtllm_spec_decode_num_accepted_tokens_total 75.0
# TYPE trtllm_spec_decode_num_draft_tokens_total counter
trtllm_spec_decode_num_draft_tokens_total 350.0
"""
    (found,) = read_metrics_file(written(tmp_path, trtllm))
    assert found.engine == "TensorRT-LLM"
    assert found.counters.num_rounds == 50


def ranks(name: str, *values: float, kind: str = "gauge") -> str:
    """A series for each tensor-parallel rank."""
    lines = [f'{name}{{model_name="m",tp_rank="{rank}"}} {value}' for rank, value in enumerate(values)]
    return "\n".join([f"# TYPE {name} {kind}", *lines, ""])


SGLANG = """sglang:spec_verify_calls_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 2665.0
sglang:num_requests_total{model_name="m"} 40.0
"""
DRAFTED = "sglang:spec_num_draft_tokens"


def test_what_ranks_repeat_counts_once(tmp_path: Path) -> None:
    (found,) = read_metrics_file(written(tmp_path, SGLANG + ranks(DRAFTED, 8, 8)))
    assert (found.k, found.model) == (7, "m")
    assert found.counters.acceptance_length == pytest.approx(2.625)
    repeated = SGLANG.replace('sglang:spec_verify_calls_total{model_name="m"} 1000.0\n', "")
    repeated += ranks("sglang:spec_verify_calls_total", 1000, 1000, kind="counter")
    (found,) = read_metrics_file(written(tmp_path, repeated))
    assert found.counters.num_rounds == 1000
    # A scheduler that had nothing to do yet has not set its gauge.
    (found,) = read_metrics_file(written(tmp_path, SGLANG + ranks(DRAFTED, 0, 8)))
    assert found.k == 7
    # Data-parallel schedulers answer requests of their own, at ranks of their own.
    schedulers = [line.replace("}", f',dp_rank="{dp}",tp_rank="{dp}"}}') for dp in "01" for line in SGLANG.splitlines()]
    (found,) = read_metrics_file(written(tmp_path, "\n".join(sorted(schedulers)) + "\n"))
    assert (found.counters.num_rounds, found.counters.num_requests) == (2000, 80)


LLAMACPP = """# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 2665
llamacpp:spec_decode_num_draft_tokens_total 7000
llamacpp:spec_decode_num_accepted_tokens_total 1625
llamacpp:spec_decode_num_drafts_total 1000
""" + "".join(
    f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} {times}\n'
    for at, times in enumerate((800, 500, 200, 80, 30, 10, 5))
)


def test_llamacpp_counts_as_vllm_does_and_no_requests(tmp_path: Path) -> None:
    (found,) = read_metrics_file(written(tmp_path, LLAMACPP))
    assert (found.engine, found.k, found.is_rounded) == ("llama.cpp", 7, False)
    assert found.counters == ServerCounters(1000, 7000, 1625, (800, 500, 200, 80, 30, 10, 5), 2665)
    assert found.counters.acceptance_length == pytest.approx(2.625)
    (found,) = read_metrics_file(written(tmp_path, LLAMACPP.replace("total 7000", "total 7.00012e+06")))
    assert found.is_rounded


TWO_MODELS = SGLANG + SGLANG.replace('"m"', '"other"')


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (SGLANG + ranks(DRAFTED, 8, 4), "has sglang:spec_num_draft_tokens of 4 and of 8: .* a gauge is no sum"),
        (
            SGLANG.replace("sglang:num_requests", "other") + ranks("sglang:num_requests_total", 40, 39, kind="counter"),
            "has sglang:num_requests_total of 40 on one rank and of 39 on another",
        ),
        (TWO_MODELS, "metrics of 2 served models, m, other; choose one: .* `grep 'model_name=\"m\"'`"),
        (VLLM_METRICS + SGLANG, "has metrics of vLLM and SGLang; keep the lines of one engine"),
    ],
)
def test_what_belongs_to_nobody_together_is_refused(tmp_path: Path, content: str, words: str) -> None:
    # Series of a name stand together, as servers write them.
    path = written(tmp_path, "\n".join(sorted(line for line in content.splitlines() if line[0] != "#")) + "\n")
    with pytest.raises(EngineError, match=words):
        read_metrics_file(path)


SERVER = {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8}


@pytest.mark.parametrize(
    ("length", "server", "words"),
    [
        (None, SERVER | {"dp_size": 4}, "accept_length null and dp_size 4: the benchmark asks one of the 4 schedulers"),
        (2.9, SERVER | {"dp_size": 4}, "accept_length 2.9 and dp_size 4: .*/metrics before and after"),
        (None, SERVER | {"dp_size": 1}, r"accept_length null, although its server drafts \(DFLASH\)"),
        (None, {"speculative_algorithm": None}, "the server drafted nothing.*serve with a drafter"),
    ],
)
def test_why_a_benchmark_of_sglang_tells_no_length(
    tmp_path: Path, length: float | None, server: dict[str, object], words: str
) -> None:
    line = {"completed": 40, "total_output_tokens": 2665, "accept_length": length, "server_info": server}
    with pytest.raises(EngineError, match=words):
        read_metrics_file(written(tmp_path, json.dumps(line)))


def test_the_benchmark_of_a_real_vllm() -> None:
    (found,) = read_metrics_file(TESTS / "data" / "engines" / "vllm_bench_serve.json")
    assert (found.kind, found.k) == (VLLM_BENCH, 7)
    assert found.counters == ServerCounters(29, 203, 64, (22, 16, 10, 5, 4, 4, 3), 96, 3)
    assert found.counters.acceptance_length == pytest.approx(93 / 29)


def test_lines_of_sglangs_benchmark(tmp_path: Path) -> None:
    line = {"backend": "sglang", "completed": 4, "total_output_tokens": 100, "accept_length": 2.5}
    line |= {"output_throughput": 9.0, "server_info": {"speculative_num_draft_tokens": 8}}
    file, other = read_metrics_file(written(tmp_path, json.dumps(line) + "\n" + json.dumps(line) + "\n"))
    assert file == other
    assert (file.kind, file.counters, file.k) == (SGLANG_BENCH, ServerCounters(40, num_tokens=100, num_requests=4), 7)


def test_records_of_aiperf(tmp_path: Path) -> None:
    record = {"engine": "vllm", "num_spec_steps": 3, "num_accepted_draft_tokens": 4, "num_draft_tokens": 9}
    record |= {"num_spec_tokens": 3, "acceptance_histogram": {"0": 1, "1": 1, "3": 1}, "completion_tokens": 8}
    line = {"metadata": {"x_request_id": "a"}, "metrics": {}, "spec_decode_acceptance": record}
    (found,) = read_metrics_file(written(tmp_path, "\n".join([json.dumps(line)] * 2)))
    assert (found.kind, found.engine, found.k) == (AIPERF, "vLLM", 3)
    assert found.counters == ServerCounters(6, 18, 8, (4, 2, 2), 16, 2)
    assert [request.num_rounds for request in found.requests] == [3, 3]
    del record["acceptance_histogram"]
    whole = json.dumps(line | {"spec_decode_acceptance": record | {"acceptance_histogram": {"2": 3}}})
    (found,) = read_metrics_file(written(tmp_path, f"{whole}\n{json.dumps(line)}"))
    assert found.counters == ServerCounters(6, 18, 8, None, 16, 2), "a request without rounds by position has none"


@pytest.mark.parametrize(
    ("told", "dtype"), [("half", "float16"), ("auto", None), ("bfloat16", "bfloat16"), (None, None)]
)
def test_dtypes_of_sglang(told: str | None, dtype: str | None) -> None:
    info = {} if told is None else {"dtype": told}
    assert Sglang().facts({"/server_info": info}, None).dtype == dtype


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("{", "no JSON"),
        ('{"a": 1}', "of no kind that is known"),
        ('{"format": "simlab-cost"}', "of simlab's own already"),
        ('{"completed": 3, "output_throughput": 1.0}', "without counts of speculative decoding"),
        ('{"completed": 3, "accept_length": null}', "accept_length null: the server drafted nothing"),
        ('{"spec_decode_num_drafts": -1}', "whole number from 0"),
        ("# TYPE up gauge\nup 1\n", "of no engine that is known"),
        ("# TYPE vllm:x gauge\nvllm:x 1\n", "no counts of its speculative decoding"),
        ("vllm:spec_decode_num_drafts_total 1.5\n", "to be a whole number"),
        ("vllm:spec_decode_num_drafts_total nan\n", "to be a whole number"),
        ("vllm:spec_decode_num_drafts_total 5e-324\n", "to be a whole number"),
        (
            'vllm:spec_decode_num_drafts_total 1\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position="x"} 1\n',
            "count from 0",
        ),
        ("\x00\x01 what", "no Prometheus text"),
        (b"\xff\xfe\x00", "no text"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(EngineError, match=words):
        read_metrics_file(written(tmp_path, content))


RECORD = {"num_spec_steps": 3, "num_accepted_draft_tokens": 4, "completion_tokens": 8}
BENCH = {"spec_decode_num_drafts": 10, "spec_decode_draft_tokens": 70}
LENGTH = {"completed": 3, "total_output_tokens": 97}
MORE_DRAFTED = 'vllm:spec_decode_num_draft_tokens_total{engine="0"} 3.0\n'
TWICE = VLLM_METRICS.replace("# TYPE vllm:generation", f"{MORE_DRAFTED}# TYPE vllm:generation")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([LENGTH | {"accept_length": value}], "expected accept_length of .* to be from 1")
        for value in (-2.5, 5e-324, 0.5, 1e300)
    ]
    + [
        ([BENCH | {"spec_decode_per_position_acceptance_rates": rates}], "to be shares from 0 to 1")
        for rates in ([-1, 3], [1e308], ["x"], [0.5, None])
    ]
    + [
        ([RECORD | {"acceptance_histogram": {key: 1}}], "by numbers of accepted tokens")
        for key in ("999999999", "9" * 5000, "-1", "x")
    ]
    + [
        ([RECORD, {"num_spec_stepz": 3}], "line 2 has no record of speculative decoding"),
        ([RECORD | {"num_spec_steps": 1 << 60}], "whole number from 0"),
        ([RECORD | {"num_draft_tokens": 3}], "counts 4 accepted tokens of 3 drafted ones"),
        ([BENCH | {"completed": 10**9, "total_output_tokens": 0}], "counts 0 tokens in 1,000,000,000 requests"),
        (
            [BENCH | {"completed": 3, "total_output_tokens": 9}],
            "counts 9 tokens in 10 rounds; each writes one at least",
        ),
        ([VLLM_METRICS.replace('position="0"} 5.0', 'position="0"} -5.0')], "to be a whole number; got -5"),
        ([VLLM_METRICS.replace('model_name="m"} 9.0', 'model_name="m"} -9.0')], "to be a whole number; got -9"),
        (["vllm:spec_decode_num_drafts_total " + "9" * 400], "to be a whole number|no Prometheus text"),
        ([VLLM_METRICS + VLLM_METRICS], "no Prometheus text|with the same labels twice"),
        ([TWICE], "with the same labels twice, as two readings in one file have"),
    ],
)
def test_impossible_counts_are_refused_and_not_summed_or_skipped(
    tmp_path: Path, lines: list[object], words: str
) -> None:
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    with pytest.raises(EngineError, match=words):
        read_metrics_file(written(tmp_path, content))


def test_a_request_that_failed_has_no_record(tmp_path: Path) -> None:
    failed = {"metadata": {}, "error": {"type": "HTTPError"}}
    (file,) = read_metrics_file(written(tmp_path, "\n".join(map(json.dumps, [RECORD, failed]))))
    assert file.counters.num_requests == 1


LOGGED = (
    "INFO [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: 1.00 tokens/s, "
    "Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position "
    "acceptance rate: {rates}, Avg Draft acceptance rate: 1.0%"
)


def test_the_lines_of_a_log_are_added_up(tmp_path: Path) -> None:
    lines = [
        LOGGED.format(length="1.75", accepted=6, drafted=16, rates="0.500, 0.250"),
        "INFO Engine 000: Avg prompt throughput: 10.1 tokens/s",
        LOGGED.format(length="2.00", accepted=4, drafted=8, rates="0.750, 0.250"),
        LOGGED.format(length="1.00", accepted=0, drafted=0, rates="0.000, 0.000"),
    ]
    (file,) = read_metrics_file(written(tmp_path, "\n".join(lines)))
    counted = file.counters
    assert (file.engine, file.k, counted.num_rounds, counted.num_drafted, counted.num_accepted) == (
        "vLLM",
        2,
        12,
        24,
        10,
    )
    assert counted.accepted_at == (7, 3)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="there is none"):
        read_metrics_file(tmp_path / "nothing")


def test_counts_between_two_readings() -> None:
    before, after = ServerCounters(5, 35, 9, (4, 2), 20, 2), ServerCounters(9, 63, 20, (8, 5, 1), 40, 4)
    assert after.since(before) == ServerCounters(4, 28, 11, (4, 3, 1), 20, 2)
    with pytest.raises(EngineError, match="started anew"):
        before.since(after)
    with pytest.raises(EngineError, match="started anew"):
        ServerCounters(9, accepted_at=(1,)).since(ServerCounters(5, accepted_at=(0, 0)))
