"""CaDDTree beside DDTree of 16: against plain Python, on made-up records and on the real ones."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_domino import made_up_contents, parsed
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


def test_real_records() -> None:
    """All printed figures come out; equal lengths in 430 of 430 turns of one model, in 412 of the other."""
    found = check_against_oracle(real_release("domino-tree"))
    assert all(abs(one["difference"]) < 0.00501 for one in found["figures"])
    assert [row["same"] for row in found["settings"] if row["temperature"] == "0.0"] == [430, 412]
