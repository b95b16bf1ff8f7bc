"""CaDDTree beside DDTree of 16: against plain Python, on made-up records and on the real ones."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_domino import lines, made_up_contents, parsed
from released_data import made_up_release, names_like, real_release, values_of

from simlab.studies.reproduce.domino.caddtree import domino_caddtree
from simlab.studies.reproduce.domino.records import MODELS, TEMPERATURES, Model
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ReleasedFiles

QUIET = ReproduceOptions(progress=False)
Values = Mapping[str, Any]


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    return made_up_contents()


def sums_of(files: ReleasedFiles, model: Model, temperature: str) -> list[float]:
    """The oracle's: pooled means of both methods from their sums."""
    found = []
    for method in ("caddtree", "ddtree_tb16"):
        names = names_like(files, f"{model.summaries[temperature]}/*_T{temperature}.pt.summary.json")
        rows = [row for name in names for row in json.loads(files.text(name))["rows"] if row["method"] == method]
        rounds = [row["decode_rounds_mean"] * row["samples"] for row in rows]
        lengths = [row["accept_len_round_weighted"] for row in rows]
        found.append(sum(one * other for one, other in zip(rounds, lengths, strict=True)) / sum(rounds))
    return found


def check_against_oracle(files: ReleasedFiles) -> Values:
    """Turns that are the same, both means' ratios and speeds, by loops; gives what was found."""
    found = values_of(domino_caddtree(files, QUIET))
    rows = iter(found["settings"])
    for model in MODELS:
        for temperature in TEMPERATURES:
            row, two = next(rows), {}
            names = names_like(files, f"{model.raw}/baseline_ddtree_caddtree/*_T{temperature}.jsonl")
            records = [one for name in names for one in parsed(files.text(name))]
            for method in ("caddtree", "ddtree_tb16"):
                two[method] = [record for record in records if record["method"] == method]
            keys = [key for key in ("mean_accept", "num_output", "decode_rounds") if key in records[0]]
            pairs = list(zip(*two.values(), strict=True))
            assert row["same"] == sum(all(one[key] == other[key] for key in keys) for one, other in pairs)
            assert row["turns"] == len(pairs)
            for key, name in (("mean_accept", "macro_length_ratio"), ("tps", "speed_ratio")):
                means = [statistics.fmean(one[key] for one in some) for some in two.values()]
                assert row[name] == pytest.approx(means[0] / means[1], abs=2e-5)
            if "decode_rounds" in keys:
                pooled = [
                    sum(round(one["mean_accept"] * one["decode_rounds"]) for one in some)
                    / sum(one["decode_rounds"] for one in some)
                    for some in two.values()
                ]
            else:
                pooled = sums_of(files, model, temperature)
                assert row["pooled_length_ratio_ci_low"] is None
            assert row["pooled_length_ratio"] == pytest.approx(pooled[0] / pooled[1], abs=2e-5)
    return found


def test_is_as_in_plain_python(contents: dict[str, str], tmp_path: Path) -> None:
    found = check_against_oracle(made_up_release(tmp_path, contents))
    assert all(abs(one["difference"]) < 0.006 for one in found["figures"])
    greedy = [row for row in found["settings"] if row["temperature"] == "0.0"]
    assert all(0 < row["same"] < row["turns"] for row in greedy)


def with_nodes(contents: dict[str, str], nodes: Mapping[str, float | None]) -> dict[str, str]:
    """A release in which CaDDTree chose so many nodes of 16, by temperature; None: not released."""
    changed = dict(contents)
    for name, text in contents.items():
        temperature = name.partition("_T")[2].removesuffix(".pt.summary.json")
        if name.endswith(".pt.summary.json") and temperature in nodes:
            summary = json.loads(text)
            for row in summary["rows"]:
                row.pop("budget_mean_unweighted", None)
                if row["method"] == "caddtree" and nodes[temperature] is not None:
                    row["budget_mean_unweighted"] = nodes[temperature]
            changed[name] = json.dumps(summary)
    return changed


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ((15.99, 16.0, 16.0), "chose 15.990 to 16.000 on average (Qwen3-8B): it was DDTree with that budget"),
        ((9.0, 8.0, 7.5), "chose 7.500 to 9.000 on average (Qwen3-8B): costs made its trees smaller, so"),
        ((16.0, 9.0, 9.0), "costs made its trees smaller in 2 of 3 settings."),
        ((None, None, None), "How many nodes CaDDTree chose was not released."),
    ],
)
def test_what_follows_depends_on_the_nodes(
    nodes: tuple[float | None, ...], told: str, contents: dict[str, str], tmp_path: Path
) -> None:
    changed = with_nodes(contents, dict(zip(TEMPERATURES, nodes, strict=True)))
    found = domino_caddtree(made_up_release(tmp_path, changed), QUIET)
    assert told in found.follows
    assert ("says nothing of cost-awareness" in found.follows) == (nodes[1] == 16.0)


def test_what_follows_depends_on_the_lengths(contents: dict[str, str], tmp_path: Path) -> None:
    """With other lengths in every turn costs may have decided; and longer ones are an interval that excludes 1."""
    before = domino_caddtree(made_up_release(tmp_path / "as made", contents), QUIET)
    assert "nothing that costs could decide mattered" in before.follows
    changed = dict(contents)
    for name, text in contents.items():
        if "baseline_ddtree_caddtree/" in name:
            records = parsed(text)
            for record in records:
                record["mean_accept"] *= 3.001 if record["method"] == "caddtree" else 1
            changed[name] = lines(records)
    after = domino_caddtree(made_up_release(tmp_path / "longer", changed), QUIET)
    assert "0 of 10 turns (Qwen3-4B) and 0 of 10 turns (Qwen3-8B); so in most turns they drafted" in after.follows
    assert "macro length Qwen3-8B T=1.0: 3." in after.follows


def test_real_records() -> None:
    """All printed figures come out; equal lengths in 430 of 430 turns of one model, in 412 of the other."""
    found = check_against_oracle(real_release("domino-tree"))
    assert all(abs(one["difference"]) < 0.00501 for one in found["figures"])
    assert [row["same"] for row in found["settings"] if row["temperature"] == "0.0"] == [430, 412]
