"""Searches in parts: sums of the prompts, merged, lead to the very choice of one process."""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_traces import PLANTED, stairs, write_trace
from study_results import merge_refusal, refused

from simlab.studies.merge import merge
from simlab.studies.optimize.optimize import optimize, sum_part
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import NotedPart
from simlab.traces.results.sums import merge_sums, read_sums, sums_schema, write_sums
from simlab.workers.parts import Part

ASKED = ("ddtree:budget=1..8", "chain:length=1..7")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two traces of their own prompts, and two latency profiles."""
    made = tmp_path_factory.mktemp("optimize")
    write_trace(made / "dev", "dev", 1)
    write_trace(made / "test", "test", 2)
    write_cost_file(made / "one.json", stairs(PLANTED, 0.010))
    write_cost_file(made / "other.json", stairs(PLANTED - 2, 0.020))
    return made


class Search:
    """The studies of a search with all that its machines are asked alike."""

    def __init__(self, place: Path, costs: tuple[str, ...] = ("one",), *policies: str, **more: object) -> None:
        cost = [place / f"{name}.json" for name in costs]
        sides = {"trace": place / "test", "dev_trace": place / "dev", "policies": [*ASKED, *policies]}
        self.asked: dict[str, Any] = {**sides, "cost": cost, "threads": 1, **more}

    def chosen(self, **more: Any) -> str:  # noqa: ANN401
        return optimize(**self.asked, **more).text()

    def part(self, shard: str, sums: Path, **more: Any) -> Path:  # noqa: ANN401
        sum_part(**self.asked, shard=shard, sums=sums, **more)
        return sums

    def parts(self, folder: Path, count: int) -> list[Path]:
        return [self.part(f"{number}/{count}", folder / f"{number}-of-{count}.parquet") for number in range(count)]


@pytest.mark.parametrize(
    ("costs", "more"),
    [(("one",), {}), (("one", "other"), {}), ((), {"objective": "acceptance_length", "node_cap": 6})],
)
def test_the_parts_lead_to_the_choice_of_one(
    place: Path, tmp_path: Path, costs: tuple[str, ...], more: dict[str, object]
) -> None:
    path, together, merged = tmp_path / "one.json", tmp_path / "together.json", tmp_path / "merged.parquet"
    search = Search(place, costs, **more)
    said = search.chosen(halving=False, out=path)
    (whole,) = search.parts(tmp_path, 1)
    for count, order in ((2, (1, 0)), (4, (2, 0, 3, 1))):
        parts = search.parts(tmp_path, count)
        merge([parts[number] for number in order], merged)
        assert merged.read_bytes() == whole.read_bytes()
        merged.unlink()
    assert search.chosen(sums=whole, out=together) == said
    assert together.read_bytes() == path.read_bytes()


@pytest.mark.thorough
def test_one_trace_in_halves_and_more_parts_than_prompts(tmp_path: Path) -> None:
    """The packaged trace has 41 prompts, so some of 48 parts have none on a side, and some none at all."""
    asked, sums = (None, ["ddtree:budget=4/8"]), tmp_path / "sums.parquet"
    optimize(*asked, threads=1, halving=False, out=tmp_path / "one.json")
    paths = [tmp_path / f"{number}.parquet" for number in range(48)]
    parts = [sum_part(*asked, threads=1, shard=Part(n, 48), sums=path) for n, path in enumerate(paths)]
    numbers = [part.prompts for part in parts]
    assert (sum(numbers), min(numbers)) == (41, 0)
    merge(paths[::-1], sums)
    optimize(*asked, threads=1, sums=sums, out=tmp_path / "together.json")
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
                "prompt_id": str(neighbour),
                "cost_id": None,
                "policy": policy,
                "policy_id": f"id of {policy}",
                "committed": neighbour,
                "rounds": neighbour,
                "drafted": 3,
                "seconds": 0.1 * (neighbour + 1) / 3,
                "plain_seconds": None,
            }
            for side, number in numbers.items()
            for neighbour in part.neighbours(number)
            for policy in ("b", "a")
        ]
        return pl.DataFrame(listed, sums_schema())

    def written(part: Part, name: str) -> Path:
        of = {"dev_text_id": "text", "simlab_version": "1"}
        write_sums(folder / name, rows(part), NotedPart(part, of))
        return folder / name

    whole = written(Part(0, 1), "whole.parquet")
    paths = [written(Part(number, count), f"{number}.parquet") for number in range(count)]
    chance.shuffle(paths)
    merge_sums(paths, folder / "merged.parquet")
    assert (folder / "merged.parquet").read_bytes() == whole.read_bytes()


def test_merge_names_what_is_wrong_with_parts(place: Path, tmp_path: Path) -> None:
    out, search = tmp_path / "sums.parquet", Search(place)
    first, second = search.parts(tmp_path, 2)
    other = tmp_path / "other.parquet"
    assert f"{first} and {first} are both part 0/2" in merge_refusal(out, first, second, first)
    Search(place, ("other",)).part("1/2", other)
    assert "is in the first alone" in merge_refusal(out, first, other)
    rows, noted, of = read_sums(second)
    assert noted is not None
    for key, value in (("simlab_version", "0.0.1"), ("dev_text_id", "another"), ("evaluation_draft_id", "another")):
        write_sums(other, rows, NotedPart(noted.part, {**of, key: value}))
        said = merge_refusal(out, first, other)
        assert f"{first} and {other} are parts of different works: they differ in {key} (" in said
    write_sums(other, rows.head(rows.height - 1), noted)
    assert f"{other} has not one row for each policy on each prompt" in merge_refusal(out, first, other)
    for committed in (pl.lit(-(2**62)), pl.lit(0), pl.lit(None), pl.col("committed") + (pl.int_range(pl.len()) == 0)):
        write_sums(other, rows.with_columns(committed=committed.cast(pl.Int64)), noted)
        assert f"{other} is not a file of sums of this simlab" in merge_refusal(out, first, other)
    other.write_bytes(b"nothing")
    assert f"{other} is not a file of sums of this simlab" in merge_refusal(out, first, other)


def test_the_choice_names_what_is_wrong_with_sums(place: Path, tmp_path: Path) -> None:
    search = Search(place)
    (whole,) = search.parts(tmp_path, 1)
    assert "has not one sum of chain" in refused(Search(place, ("other",)).chosen, sums=whole)
    search.asked |= {"trace": place / "dev", "dev_trace": place / "test"}
    said = refused(search.chosen, sums=whole)
    assert f"{whole} is of another search: it differs in evaluation_text_id (" in said
