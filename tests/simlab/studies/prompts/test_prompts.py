"""Prompt files from a person's own copies, from a hub, and from what comes with simlab."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from hub_server import Hub, run_commands, serving
from study_results import refused

from simlab.real_runner.record.prompts import read_prompts
from simlab.studies.prompts.prompts import prompts
from simlab.traces.reader import open_trace, packaged_trace

Row = dict[str, object]


def gsm8k(num: int, of: str = "test") -> list[Row]:
    return [{"question": f"{of} {i}: how many?", "answer": f"#### {i}"} for i in range(num)]


def mbpp() -> list[Row]:
    return [{"task_id": i, "text": f"Write function {i}.", "code": "pass", "test_list": ["x"]} for i in range(1, 975)]


def humaneval() -> list[Row]:
    return [
        {"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n", "test": "", "entry_point": "f"} for i in range(164)
    ]


def mt_bench() -> list[Row]:
    names = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
    return [{"question_id": i, "category": names[(i - 81) // 10], "turns": [f"{i}?", "And?"]} for i in range(81, 161)]


def lines(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def whole(path: Path, rows: list[Row]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def parquet(path: Path, rows: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.from_dicts(rows).write_parquet(path)
    return path


def made(out: Path, name: str, source: Path | None = None, **more: object) -> list[Row]:
    """The rows of a file that is made, in the form that ``simlab record`` reads."""
    prompts(name, source=source, out=out, **more)  # type: ignore[arg-type]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(read_prompts(out)) == len(rows)
    out.unlink()
    return rows


def ids(rows: list[Row]) -> list[str]:
    return [str(row["id"]) for row in rows]


def test_a_question_is_put_as_the_release_puts_it(tmp_path: Path) -> None:
    """The wording of z-lab/dflash, dflash/benchmark.py at commit 1fe684b0."""
    step_by_step = "Please reason step by step, and put your final answer within \\boxed{}."
    begins = "Write a solution to the following problem and make sure that it passes the tests:\n"
    wanted: dict[str, tuple[Path, Row]] = {
        "gsm8k": (
            lines(tmp_path / "gsm8k.jsonl", gsm8k(2)),
            {"id": "gsm8k-test-0", "dataset": "gsm8k", "turns": [f"test 0: how many?\n{step_by_step}"]},
        ),
        "mbpp": (
            lines(tmp_path / "mbpp.jsonl", mbpp()),
            {"id": "mbpp-11", "dataset": "mbpp", "turns": ["Write function 11."]},
        ),
        "humaneval": (
            lines(tmp_path / "HumanEval.jsonl.gz", humaneval()),
            {"id": "humaneval-0", "dataset": "humaneval", "turns": [f"{begins}```python\ndef f0():\n\n```"]},
        ),
        "mt-bench": (
            lines(tmp_path / "question.jsonl", mt_bench()),
            {"id": "mt_bench-writing-81", "dataset": "mt_bench", "turns": ["81?", "And?"]},
        ),
    }
    for name, (copy, row) in wanted.items():
        assert made(tmp_path / "out", name, copy)[0] == row


@pytest.mark.parametrize(
    ("name", "copy", "num_test", "num_dev", "num_all"),
    [("mbpp", mbpp, 500, 374, None), ("humaneval", humaneval, 123, 41, 164), ("mt-bench", mt_bench, 60, 20, 80)],
)
def test_dev_and_test_share_no_prompt_and_no_dev_prompt_is_packaged(
    tmp_path: Path, name: str, copy: Callable[[], list[Row]], num_test: int, num_dev: int, num_all: int | None
) -> None:
    path, out = lines(tmp_path / "copy.jsonl", copy()), tmp_path / "out"
    test, dev = (ids(made(out, name, path, split=split)) for split in ("test", "dev"))
    assert (len(test), len(dev)) == (num_test, num_dev)
    assert not set(test) & set(dev)
    packaged = {record.prompt.prompt_id for record in open_trace(packaged_trace()).sequences()}
    assert packaged & set(test)
    assert not packaged & set(dev)
    if num_all is not None:
        assert len(made(out, name, path, split="all")) == num_all == num_test + num_dev


def test_limit_skip_and_seed_choose_rows(tmp_path: Path) -> None:
    path, out = lines(tmp_path / "test.jsonl", gsm8k(50)), tmp_path / "out"
    every = ids(made(out, "gsm8k", path))
    assert ids(made(out, "gsm8k", path, limit=7)) == every[:7]
    assert ids(made(out, "gsm8k", path, skip=7, limit=5)) == every[7:12]
    drawn = [ids(made(out, "gsm8k", path, seed=seed)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == sorted(every)
    assert ids(made(out, "gsm8k", path, seed=3, skip=4, limit=6)) == drawn[0][4:10]


@pytest.mark.parametrize("write", [lines, whole, parquet])
def test_a_copy_may_be_lines_a_list_or_parquet(tmp_path: Path, write: Callable[[Path, list[Row]], Path]) -> None:
    rows = [{"task_id": row["task_id"], "prompt": row["text"]} for row in mbpp()]
    path = write(tmp_path / ("copy.parquet" if write is parquet else "sanitized-mbpp.json"), rows)
    assert made(tmp_path / "out", "mbpp", path)[0]["turns"] == ["Write function 11."]


@pytest.mark.parametrize(("name", "num"), [("sample", 41), ("demo", 8), ("demo-dev", 8)])
def test_what_comes_with_simlab_is_written_out(tmp_path: Path, name: str, num: int) -> None:
    rows = made(tmp_path / "out", name)
    assert len(rows) == num
    if name == "sample":
        recorded = dict.fromkeys(record.prompt.prompt_id for record in open_trace(packaged_trace()).sequences())
        assert ids(rows) == list(recorded)
    assert made(tmp_path / "out", name, limit=3) == rows[:3]


FILES: dict[str, bytes] = {
    "good.jsonl": b'{"question": "a", "answer": "b"}\n' * 2,
    "train.jsonl": b'{"question": "a", "answer": "b"}\n' * 2,
    "other.jsonl": b'{"problem": "1 + 1"}\n',
    "few.jsonl": b'{"task_id": 1, "text": "a"}\n',
    "damaged.jsonl.gz": b"no gzip",
    "bad.jsonl": b"{\n",
    "bad.parquet": b"{\n",
}


@pytest.mark.parametrize(
    ("name", "source", "more", "said"),
    [
        ("gsm8k", "nothing.jsonl", {}, "cannot be read"),
        ("gsm8k", "other.jsonl", {}, "entry 1: expected text in 'question'; got the keys problem"),
        ("gsm8k", "damaged.jsonl.gz", {}, "cannot be read"),
        ("gsm8k", "bad.jsonl", {}, "bad.jsonl, line 1: expected one JSON object"),
        ("gsm8k", "bad.parquet", {}, "cannot be read as Parquet"),
        ("gsm8k", "train.jsonl", {}, "train.jsonl is by its name the split train, of which the dev"),
        ("gsm8k", "good.jsonl", {"split": "all"}, "gsm8k has the splits test, dev; got 'all'"),
        ("gsm8k", "good.jsonl", {"skip": 2}, "there are 2 prompts of gsm8k, split test, from"),
        ("mbpp", "few.jsonl", {}, "no prompt of the split test"),
        ("gsm8k", "good.jsonl", {"out": "good.jsonl"}, "exists"),
        ("gsm8k", "good.jsonl", {"out": "."}, "exists"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    name: str, source: str | None, more: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in FILES.items():
        Path(file).write_bytes(content)
    before = {path.name for path in tmp_path.iterdir()}
    assert said in refused(prompts, name, source=source, **{"out": "new.jsonl", **more})
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub of data sets, laid out as the published ones."""
    folder = tmp_path_factory.mktemp("data sets")
    parquet(folder / "gsm8k" / "main" / "test-00000-of-00001.parquet", gsm8k(5))
    parquet(folder / "gsm8k" / "main" / "train-00000-of-00001.parquet", gsm8k(6, "train"))
    parquet(folder / "gsm8k" / "socratic" / "test-00000-of-00001.parquet", gsm8k(3, "socratic"))
    sanitized = [{"task_id": row["task_id"], "prompt": row["text"]} for row in mbpp()]
    parquet(folder / "mbpp" / "sanitized" / "test-00000-of-00001.parquet", sanitized[10:510:2])
    parquet(folder / "mbpp" / "sanitized" / "train-00000-of-00001.parquet", sanitized[600::3])
    parquet(folder / "humaneval" / "openai_humaneval" / "test-00000-of-00001.parquet", humaneval())
    lines(folder / "mt" / "raw" / "question.jsonl", mt_bench())
    for number in ("", "2"):
        code: list[Row] = [{"question_id": f"q{number}-{i}", "question_content": "Add."} for i in range(8)]
        lines(folder / "lcb" / f"test{number}.jsonl", code)
    parquet(folder / "speed" / "throughput_2k" / "test-00000-of-00001.parquet", speed_bench(7))
    (folder / "empty").mkdir()
    (folder / "empty" / "README.md").write_text("# nothing")
    with serving() as made:
        made.add("openai/gsm8k", folder / "gsm8k")
        made.add("google-research-datasets/mbpp", folder / "mbpp")
        made.add("openai/openai_humaneval", folder / "humaneval")
        made.add("HuggingFaceH4/mt_bench_prompts", folder / "mt")
        made.add("livecodebench/code_generation_lite", folder / "lcb")
        made.add("nvidia/SPEED-Bench", folder / "speed")
        made.add("org/empty", folder / "empty")
        made.add("org/gated", folder / "gsm8k")
        made.refused["org/gated"] = (401, "GatedRepo", "Access to dataset org/gated is restricted.")
        yield made


def test_data_sets_are_fetched_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    cases = {
        ("gsm8k", "test"): ("gsm8k-test-0", 5),
        ("gsm8k", "dev"): ("gsm8k-train-0", 6),
        ("mbpp", "test"): ("mbpp-11", 250),
        ("mbpp", "dev"): ("mbpp-601", 125),
        ("humaneval", "all"): ("humaneval-0", 164),
        ("mt-bench", "dev"): ("mt_bench-writing-82", 20),
        ("livecodebench", "all"): ("livecodebench-q-0", 16),
        ("speed-bench-2k", "all"): (f"speed_bench_2k-{0:032x}", 7),
    }
    outs = {case: tmp_path / f"{'-'.join(case)}.jsonl" for case in cases}
    commands = [["prompts", name, "--split", split, "--out", str(out)] for (name, split), out in outs.items()]
    for said in run_commands(hub.address, tmp_path / "home", commands):
        assert said.code == 0, said
    for case, out in outs.items():
        asked = read_prompts(out)
        assert (asked[0].prompt_id, len(asked)) == cases[case]
    assert not any(path.startswith("socratic") for path in hub.files_asked("openai/gsm8k"))
    cached = ["prompts", "gsm8k", "--out", str(tmp_path / "again.jsonl")]
    (said,) = run_commands("http://127.0.0.1:9", tmp_path / "home", [cached])
    assert said.code == 0, said
    assert hub.commits["openai/gsm8k"]["main"][:12] in said.out


def test_what_the_hub_refuses_is_said_in_a_sentence(hub: Hub, tmp_path: Path) -> None:
    cases = {
        "org/none": "has no dataset of that name that you may read; check the spelling, or log in with `hf auth login`",
        "org/gated": f"ask for access at {hub.address}/datasets/org/gated, then log in with `hf auth login` or set HF",
        "org/empty": "holds none of main/test-*.parquet",
    }
    out = str(tmp_path / "none.jsonl")
    commands = [["prompts", "gsm8k", "--from", name, "--out", out] for name in cases]
    for said, part in zip(run_commands(hub.address, tmp_path / "home", commands), cases.values(), strict=True):
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
        assert part in said.err, said.err
    assert not Path(out).exists()


@pytest.mark.parametrize("name", ["math-500", "aime24", "aime25"])
def test_problems_are_asked_as_the_release_asks_them(name: str, tmp_path: Path) -> None:
    rows: list[Row] = [{"problem": f"Find {i}.", "answer": str(i), "subject": "x"} for i in range(8)]
    source = lines(tmp_path / "test.jsonl", rows)
    found = made(tmp_path / "test", name, source)
    dev = made(tmp_path / "dev", name, source, split="dev")
    own = name.replace("-", "_")
    assert [row["id"] for row in dev] == [f"{own}-2", f"{own}-6"]
    assert {row["id"] for row in found} | {row["id"] for row in dev} == {f"{own}-{i}" for i in range(8)}
    assert len(found) == 6
    asked = "Find 0.\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert found[0] == {"id": f"{own}-0", "dataset": own, "turns": [asked]}


def test_livecodebench_is_asked_in_its_own_layout(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question_id": f"abc{i}", "question_content": f"Add {i}.", "starter_code": "def f():" if i % 2 else ""}
        for i in range(40)
    ]
    found = {row["id"]: row for row in made(tmp_path / "a", "livecodebench", lines(tmp_path / "test.jsonl", rows))}
    dev = made(tmp_path / "b", "livecodebench", lines(tmp_path / "part.jsonl", rows[::-1][:25]), split="dev")
    assert dev
    assert not {row["id"] for row in dev} & set(found)
    every = made(tmp_path / "c", "livecodebench", lines(tmp_path / "test2.jsonl", rows), split="all")
    plain, starting = (str(row["turns"]) for row in every[:2])
    assert "### Question:\\nAdd 0.\\n\\n### Format: Write your code in the following format:" in plain
    assert "# YOUR CODE HERE" in plain
    assert (
        "Use the following code structure:\\n```python\\ndef f():\\n```\\n\\n### Answer: (use the provided" in starting
    )


def speed_bench(num: int, **more: object) -> list[Row]:
    return [
        {"question_id": f"{i:032x}", "category": ("coding", "math")[i % 2], "turns": [f"{i}?", "And?"], **more}
        for i in range(num)
    ]


def test_rows_of_speed_bench_belong_to_their_category(tmp_path: Path) -> None:
    found = made(tmp_path / "out", "speed-bench", parquet(tmp_path / "test.parquet", speed_bench(6)), split="all")
    assert [row["dataset"] for row in found] == ["coding", "math"] * 3
    assert found[1] == {"id": f"speed_bench-{1:032x}", "dataset": "math", "turns": ["1?", "And?"]}
    said: Row = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]}
    rows = [{"question_id": "a", "category": "roleplay", **said}]
    (one,) = made(tmp_path / "out", "speed-bench-1k", lines(tmp_path / "rows.jsonl", rows), split="all")
    assert (one["id"], one["turns"]) == ("speed_bench_1k-a", ["Be kind.", "Hello"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"]},
            "is not in this file, but a note that it must be fetched from its source",
        ),
        ({"turns": []}, "expected a list of texts in 'turns'"),
        ({"turns": [3]}, "expected text in each turn; got 3"),
        (
            {"turns": None, "messages": [{"role": "assistant", "content": "x"}]},
            "of the system in front; got 'assistant'",
        ),
    ],
)
def test_rows_of_speed_bench_without_their_text_are_refused(change: Row, said: str, tmp_path: Path) -> None:
    source = lines(tmp_path / "rows.jsonl", speed_bench(2, **change))
    assert said in refused(prompts, "speed-bench", source=source, out=tmp_path / "out")
