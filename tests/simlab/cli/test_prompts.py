"""``simlab prompts``: prompt files from a person's own copies, from a hub, and from what comes with simlab."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from commands import refusal_of
from hub_server import Hub, run_commands, serving

from simlab.cli.main import main
from simlab.real_runner.record.prompts import read_prompts
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


def made(tmp_path: Path, *arguments: str, out: str = "out.jsonl") -> list[Row]:
    """The rows of a file that the command makes, in the form that ``simlab record`` reads."""
    path = tmp_path / out
    assert main(["prompts", *arguments, "--out", str(path)]) == 0
    assert len(read_prompts(path)) == len(path.read_text().splitlines())
    return [json.loads(line) for line in path.read_text().splitlines()]


def refusal(*arguments: str) -> str:
    return refusal_of("prompts", *arguments)


def test_a_question_is_put_as_the_release_puts_it(tmp_path: Path) -> None:
    """The wording of z-lab/dflash, dflash/benchmark.py at commit 1fe684b0."""
    copies = {
        "gsm8k": lines(tmp_path / "gsm8k.jsonl", gsm8k(2)),
        "mbpp": lines(tmp_path / "mbpp.jsonl", mbpp()),
        "humaneval": lines(tmp_path / "HumanEval.jsonl.gz", humaneval()),
        "mt-bench": lines(tmp_path / "question.jsonl", mt_bench()),
    }
    found = {name: made(tmp_path, name, "--from", str(path), out=f"{name}.out")[0] for name, path in copies.items()}
    asked = "test 0: how many?\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert found["gsm8k"] == {"id": "gsm8k-test-0", "dataset": "gsm8k", "turns": [asked]}
    assert found["mbpp"] == {"id": "mbpp-11", "dataset": "mbpp", "turns": ["Write function 11."]}
    assert found["humaneval"]["id"] == "humaneval-0"
    (asked,) = found["humaneval"]["turns"]  # type: ignore[misc]
    begins = "Write a solution to the following problem and make sure that it passes the tests:\n"
    assert asked == begins + "```python\ndef f0():\n\n```"
    assert found["mt-bench"] == {"id": "mt_bench-writing-81", "dataset": "mt_bench", "turns": ["81?", "And?"]}


@pytest.mark.parametrize(
    ("name", "copy", "num_test", "num_dev", "num_all"),
    [("mbpp", mbpp, 500, 374, None), ("humaneval", humaneval, 123, 41, 164), ("mt-bench", mt_bench, 60, 20, 80)],
)
def test_dev_and_test_share_no_prompt(
    tmp_path: Path, name: str, copy: Callable[[], list[Row]], num_test: int, num_dev: int, num_all: int | None
) -> None:
    path = lines(tmp_path / "copy.jsonl", copy())
    given = (name, "--from", str(path), "--split")
    test, dev = made(tmp_path, *given, "test"), made(tmp_path, *given, "dev", out="dev.jsonl")
    assert (len(test), len(dev)) == (num_test, num_dev)
    assert not {row["id"] for row in test} & {row["id"] for row in dev}
    if num_all is not None:
        assert len(made(tmp_path, *given, "all", out="all.jsonl")) == num_all == num_test + num_dev


def test_no_prompt_of_the_packaged_trace_is_a_dev_prompt(tmp_path: Path) -> None:
    packaged = {record.prompt.prompt_id for record in open_trace(packaged_trace()).sequences()}
    for name, copy in (("mbpp", mbpp), ("humaneval", humaneval), ("mt-bench", mt_bench)):
        path = lines(tmp_path / "copy.jsonl", copy())
        dev = made(tmp_path, name, "--from", str(path), "--split", "dev", out=f"{name}.dev")
        assert not packaged & {str(row["id"]) for row in dev}
        test = made(tmp_path, name, "--from", str(path), out=f"{name}.test")
        assert packaged & {str(row["id"]) for row in test}


def test_limit_skip_and_seed_choose_rows(tmp_path: Path) -> None:
    path = str(lines(tmp_path / "test.jsonl", gsm8k(50)))
    ids = [row["id"] for row in made(tmp_path, "gsm8k", "--from", path)]
    first = [row["id"] for row in made(tmp_path, "gsm8k", "--from", path, "--limit", "7", out="a")]
    then = [row["id"] for row in made(tmp_path, "gsm8k", "--from", path, "--skip", "7", "--limit", "5", out="b")]
    assert (first, then) == (ids[:7], ids[7:12])
    drawn = [made(tmp_path, "gsm8k", "--from", path, "--seed", seed, out=f"s{seed}{again}") for seed, again in SEEDS]
    whole_ids = [[row["id"] for row in rows] for rows in drawn]
    assert whole_ids[0] == whole_ids[1]
    assert whole_ids[0] != whole_ids[2]
    assert sorted(map(str, whole_ids[0])) == sorted(map(str, ids))
    part = ["gsm8k", "--from", path, "--seed", "3", "--skip", "4", "--limit", "6"]
    assert [row["id"] for row in made(tmp_path, *part, out="c")] == whole_ids[0][4:10]


SEEDS = (("3", "a"), ("3", "b"), ("4", "a"))


@pytest.mark.parametrize("write", [lines, whole, parquet])
def test_a_copy_may_be_lines_a_list_or_parquet(tmp_path: Path, write: Callable[[Path, list[Row]], Path]) -> None:
    rows = [{"task_id": row["task_id"], "prompt": row["text"]} for row in mbpp()]
    path = write(tmp_path / ("copy.parquet" if write is parquet else "sanitized-mbpp.json"), rows)
    assert made(tmp_path, "mbpp", "--from", str(path))[0]["turns"] == ["Write function 11."]


@pytest.mark.parametrize(("name", "num"), [("sample", 41), ("demo", 8), ("demo-dev", 8)])
def test_what_comes_with_simlab_is_written_out(tmp_path: Path, name: str, num: int) -> None:
    rows = made(tmp_path, name)
    assert len(rows) == num
    if name == "sample":
        recorded = dict.fromkeys(record.prompt.prompt_id for record in open_trace(packaged_trace()).sequences())
        assert [row["id"] for row in rows] == list(recorded)
    assert made(tmp_path, name, "--limit", "3", out="three") == rows[:3]


def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path) -> None:
    good, out = lines(tmp_path / "good.jsonl", gsm8k(2)), str(tmp_path / "new.jsonl")
    other = lines(tmp_path / "other.jsonl", [{"problem": "1 + 1"}])
    train = lines(tmp_path / "train.jsonl", gsm8k(2))
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(b"no gzip")
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "bad.parquet").write_text("{\n")
    cases = {
        ("gsm8k", "--from", str(tmp_path / "nothing.jsonl"), "--out", out): "cannot be read",
        ("gsm8k", "--from", str(other), "--out", out): "entry 1: expected text in 'question'; got the keys problem",
        ("gsm8k", "--from", str(damaged), "--out", out): "cannot be read",
        ("gsm8k", "--from", str(tmp_path / "bad.jsonl"), "--out", out): "bad.jsonl, line 1: expected one JSON object",
        ("gsm8k", "--from", str(tmp_path / "bad.parquet"), "--out", out): "cannot be read as Parquet",
        ("gsm8k", "--from", str(train), "--out", out): "train.jsonl is by its name the split train, of which the dev",
        ("gsm8k", "--from", str(good), "--split", "all", "--out", out): "gsm8k has the splits test, dev; got 'all'",
        ("gsm8k", "--from", str(good), "--skip", "2", "--out", out): "there are 2 prompts of gsm8k, split test, from",
        ("mbpp", "--from", str(lines(tmp_path / "few.jsonl", mbpp()[:9])), "--out", out): "no prompt of the split test",
        ("sample", "--from", str(good), "--out", out): "comes with simlab",
        ("sample", "--split", "dev", "--out", out): "comes with simlab",
        ("gsm8k", "--from", str(good), "--out", str(good)): "exists",
        ("gsm8k", "--from", str(good), "--out", str(tmp_path)): "exists",
        ("math", "--out", out): "NAME should be gsm8k",
    }
    for arguments, part in cases.items():
        assert part in refusal(*arguments), arguments
    assert not Path(out).exists()


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
    (folder / "empty").mkdir()
    (folder / "empty" / "README.md").write_text("# nothing")
    with serving() as made:
        made.add("openai/gsm8k", folder / "gsm8k")
        made.add("google-research-datasets/mbpp", folder / "mbpp")
        made.add("openai/openai_humaneval", folder / "humaneval")
        made.add("HuggingFaceH4/mt_bench_prompts", folder / "mt")
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
    }
    outs = {case: tmp_path / f"{'-'.join(case)}.jsonl" for case in cases}
    commands = [["prompts", name, "--split", split, "--out", str(out)] for (name, split), out in outs.items()]
    for said in run_commands(hub.address, tmp_path / "home", commands):
        assert said.code == 0, said
    for case, out in outs.items():
        prompts = read_prompts(out)
        assert (prompts[0].prompt_id, len(prompts)) == cases[case]
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
