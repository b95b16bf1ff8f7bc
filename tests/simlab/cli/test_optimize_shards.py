"""`simlab optimize --shard I/N --sums FILE`: sums of parts, merged, lead to the very choice of one process."""

import json
import random
from pathlib import Path

import polars as pl
import pytest
from commands import merge_refusal, output_of, refusal_of
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_traces import PLANTED, stairs, write_trace

from simlab.cli.main import main
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import NotedPart
from simlab.traces.results.sums import merge_sums, read_sums, sums_schema, write_sums
from simlab.workers.parts import Part

ASKED = ("-p", "ddtree:budget=1..8", "-p", "chain:length=1..7", "--threads", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two traces of their own prompts, and two latency profiles."""
    made = tmp_path_factory.mktemp("optimize")
    write_trace(made / "dev", "dev", 1)
    write_trace(made / "test", "test", 2)
    write_cost_file(made / "one.json", stairs(PLANTED, 0.010))
    write_cost_file(made / "other.json", stairs(PLANTED - 2, 0.020))
    return made


def typed(place: Path, *more: object, costs: tuple[str, ...] = ("one",)) -> list[str]:
    priced = [word for name in costs for word in ("--cost", str(place / f"{name}.json"))]
    both = ["--dev-trace", str(place / "dev"), "--trace", str(place / "test")]
    return ["optimize", *both, *priced, *ASKED, *map(str, more)]


def summed(place: Path, folder: Path, count: int, *more: object, costs: tuple[str, ...] = ("one",)) -> list[Path]:
    paths = [folder / f"{number}-of-{count}.parquet" for number in range(count)]
    for number, path in enumerate(paths):
        assert main(typed(place, "--shard", f"{number}/{count}", "--sums", path, *more, costs=costs)) == 0
    return paths


def refusal(arguments: list[str]) -> str:
    return refusal_of(*arguments)


@pytest.mark.parametrize(
    ("costs", "more"),
    [
        (("one",), ()),
        (("one", "other"), ()),
        ((), ("--objective", "acceptance_length", "--node-cap", "6")),
    ],
)
def test_the_parts_lead_to_the_choice_of_one(
    place: Path, tmp_path: Path, costs: tuple[str, ...], more: tuple[str, ...]
) -> None:
    one, together = tmp_path / "one.json", tmp_path / "together.json"
    said = output_of(*typed(place, "--no-halving", "--out", one, *more, costs=costs))
    (whole,) = summed(place, tmp_path, 1, *more, costs=costs)
    for count, order in ((2, (1, 0)), (4, (2, 0, 3, 1))):
        parts = summed(place, tmp_path, count, *more, costs=costs)
        merged = tmp_path / f"sums-{count}.parquet"
        assert main(["merge", *(str(parts[number]) for number in order), "--out", str(merged)]) == 0
        assert merged.read_bytes() == whole.read_bytes()
    again = output_of(*typed(place, "--sums", merged, "--out", together, *more, costs=costs))
    assert together.read_bytes() == one.read_bytes()
    assert again.replace(str(together), str(one)) == said


@pytest.mark.thorough
def test_one_trace_in_halves_and_more_parts_than_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The packaged trace has 41 prompts, so some of 48 parts have none on a side, and some none at all."""
    asked = ["optimize", "-p", "ddtree:budget=4/8", "--threads", "1"]
    assert main([*asked, "--no-halving", "--out", str(tmp_path / "one.json")]) == 0
    paths = [tmp_path / f"{number}.parquet" for number in range(48)]
    capsys.readouterr()
    for number, path in enumerate(paths):
        assert main([*asked, "--shard", f"{number}/48", "--sums", str(path), "--json"]) == 0
    numbers = [json.loads(text)["prompts"] for text in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0")]
    assert (sum(numbers), min(numbers)) == (41, 0)
    sums = tmp_path / "sums.parquet"
    assert main(["merge", *map(str, reversed(paths)), "--out", str(sums)]) == 0
    assert main([*asked, "--sums", str(sums), "--out", str(tmp_path / "together.json")]) == 0
    assert (tmp_path / "together.json").read_bytes() == (tmp_path / "one.json").read_bytes()


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 12), st.integers(0, 12), st.integers(2, 6), st.randoms(use_true_random=False))
def test_any_split_of_any_sums_is_put_together(
    tmp_path_factory: pytest.TempPathFactory, dev: int, evaluation: int, count: int, chance: random.Random
) -> None:
    """Seconds keep every bit, whatever the order in which the parts are named."""
    folder = tmp_path_factory.mktemp("split")
    numbers = {"dev": dev, "evaluation": evaluation}

    def rows(part: Part) -> pl.DataFrame:
        listed = [
            {
                "side": side,
                "dataset": "made-up",
                "prompt_id": str(place),
                "cost_id": None,
                "policy": policy,
                "policy_id": f"id of {policy}",
                "committed": place,
                "rounds": place,
                "drafted": 3,
                "seconds": 0.1 * (place + 1) / 3,
                "plain_seconds": None,
            }
            for side, number in numbers.items()
            for place in part.neighbours(number)
            for policy in ("b", "a")
        ]
        return pl.DataFrame(listed, sums_schema())

    of = {"dev_text_id": "text", "simlab_version": "1"}
    write_sums(folder / "whole.parquet", rows(Part(0, 1)), NotedPart(Part(0, 1), of))
    paths = []
    for number in range(count):
        paths.append(folder / f"{number}.parquet")
        write_sums(paths[-1], rows(Part(number, count)), NotedPart(Part(number, count), of))
    chance.shuffle(paths)
    merge_sums(paths, folder / "merged.parquet")
    assert (folder / "merged.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()


def test_merge_names_what_is_wrong_with_parts(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "sums.parquet"
    first, second = summed(place, tmp_path, 2)
    (whole,) = summed(place, tmp_path, 1)
    quarter = summed(place, tmp_path, 4)[1]
    assert "two or more" in merge_refusal(out, first)
    assert "1/2 is missing; merge takes all parts" in merge_refusal(out, first, first)
    assert f"{first} and {first} are both part 0/2" in merge_refusal(out, first, second, first)
    assert f"{first} is a part and {whole} is none" in merge_refusal(out, first, whole)
    assert f"{whole} is whole, so there is nothing to merge" in merge_refusal(out, whole, whole)
    assert "is one of 2 parts, and " in merge_refusal(out, first, quarter)
    other = tmp_path / "other.parquet"
    assert (
        main(typed(place, "--shard", "1/2", "--sums", other, "-p", "chain:length=1..3", "-p", "caddtree:budget=8")) == 0
    )
    said = merge_refusal(out, first, other)
    assert "parts of different searches: caddtree" in said
    assert "is in the second alone" in said
    assert main(typed(place, "--shard", "1/2", "--sums", other, costs=("other",))) == 0
    assert "is in the first alone" in merge_refusal(out, first, other)
    rows, noted, of = read_sums(second)
    assert noted is not None
    for key, value in (("simlab_version", "0.0.1"), ("dev_text_id", "another"), ("evaluation_draft_id", "another")):
        write_sums(other, rows, NotedPart(noted.part, {**of, key: value}))
        said = merge_refusal(out, first, other)
        assert f"{first} and {other} are parts of different works: they differ in {key} (" in said
    write_sums(other, rows.head(rows.height - 1), noted)
    assert f"{other} has not one row for each policy on each prompt" in merge_refusal(out, first, other)
    other.write_bytes(b"nothing")
    assert f"{other} is not a file of sums of this simlab" in merge_refusal(out, first, other)


def test_the_choice_names_what_is_wrong_with_sums(place: Path, tmp_path: Path) -> None:
    (whole,) = summed(place, tmp_path, 1)
    part = summed(place, tmp_path, 2)[1]
    assert f"{part} is part 1/2 alone; put all 2 together first" in refusal(typed(place, "--sums", part))
    said = refusal(typed(place, "--sums", tmp_path / "none.parquet"))
    assert "expected a file of sums at" in said
    said = refusal(typed(place, "--sums", whole, "-p", "caddtree:budget=8"))
    assert f"{whole} has not one sum of caddtree" in said
    assert "type the same -p, --cost and --node-cap" in said
    assert "has not one sum of chain" in refusal(typed(place, "--sums", whole, costs=("other",)))
    swapped = ["optimize", "--dev-trace", str(place / "test"), "--trace", str(place / "dev"), *ASKED]
    said = refusal([*swapped, "--cost", str(place / "one.json"), "--sums", str(whole)])
    assert f"{whole} is of another search: it differs in evaluation_text_id (" in said
    assert main(["replay", "--trace", str(place / "dev"), "--out", str(tmp_path / "results.parquet")]) == 0
    said = refusal(typed(place, "--sums", tmp_path / "results.parquet"))
    assert "is not a file of sums of this simlab" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--shard", "0/2"], "name their file with --sums FILE"),
        (["--shard", "0/2", "--sums", "s.parquet", "--out", "o.json"], "--out belongs to the choice"),
        (["--shard", "0/2", "--sums", "s.parquet", "--results", "o.parquet"], "--results belongs to the choice"),
        (["--shard", "0/2", "--sums", "s.parquet", "--trials", "3"], "--trials belongs to the choice"),
        (
            ["--shard", "0/2", "--sums", "s.parquet", "--halving"],
            "by their sums on all prompts, so it takes no --shard",
        ),
        (["--sums", "s.parquet", "--halving"], "by their sums on all prompts, so it takes no --sums"),
        (
            ["--shard", "0/2", "--sums", "s.parquet", "-p", "ddtree:budget=1~8"],
            "`ddtree:budget=1~8` is searched trial after trial, each on all prompts, so it takes no --shard",
        ),
        (["--sums", "s.parquet", "-p", "ddtree:budget=1~8"], "so it takes no --sums; list values"),
        (["--shard", "2/2", "--sums", "s.parquet"], "counted from 0: 0/2 to 1/2; got 2/2"),
    ],
)
def test_usage(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(typed(place, *more))
    assert list(tmp_path.iterdir()) == []
