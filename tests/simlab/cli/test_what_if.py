"""``simlab import``, ``replay --what-if`` and policies that see the convex view, from end to end."""

from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import filled, sample_s

from simlab.cli.main import main
from simlab.policies.costs.curves import convex_view
from simlab.policies.costs.what_if import parse_what_if, what_if
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.results.files import read_results
from simlab.traces.synthetic import write_synthetic_trace

CONTEXTS, NODES = (16, 64, 256), (1, 2, 9, 33, 65)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("what-if") / "trace", num_sequences=6, length=40)


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """What the target's passes take by tokens of the pass."""
    path = tmp_path / "engine.csv"
    rows = [f"{nodes},{context},{sample_s('verify', nodes - 1, context)!r}" for context in CONTEXTS for nodes in NODES]
    path.write_text("\n".join(["# a made-up engine", "nodes,context,seconds", *rows]), encoding="utf-8")
    return path


def replayed(trace: Path, *arguments: str) -> dict[str, Any]:
    return json_of("replay", "--trace", trace, "--json", *arguments)


def test_imported_prices_price_a_replay(trace: Path, timings: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "engine.json"
    typed = ["import", str(timings), "--trace", str(trace), "--counts", "root-included", "--out", str(out)]
    said = output_of(*typed, "--draft-s", "0.004", "--machine", "Made-up GPU")
    assert "Made-up GPU, imported from engine.csv" in said
    assert "select, commit: not given, so they cost nothing here" in said
    file = read_cost_file(out)
    assert file.node_counts == (0, 1, 8, 32, 64)
    assert "latency  Made-up GPU, imported from engine.csv, unknown dtype, imported (cost " in output_of(
        "replay", "--trace", trace, "-p", "ddtree:budget=8", "--cost", out
    )
    value = replayed(trace, "-p", "ddtree:budget=8", "--cost", str(out))
    (row,) = [one for one in value["rows"] if one["policy"] == "ddtree:budget=8"]
    assert value["cost"] == file.cost_id
    assert row["tokens_per_s"] > 0
    shown = output_of("inspect", out)
    assert "note       a made-up engine" in shown
    assert "thread" not in shown
    assert "WARNING" not in shown
    assert json_of("inspect", "--json", out)["flatness"]["looks_launch_bound"] is None
    assert f"{out} is there already; name another file, or delete it" in refusal_of(
        *typed, "--json", "--plain-s", "0.01"
    )
    assert read_cost_file(out) == file
    out.unlink()
    assert json_of(*typed, "--json", "--plain-s", "0.01")["cost_id"] == read_cost_file(out).cost_id != file.cost_id


def test_the_published_prices_are_shown_with_their_warning(tmp_path: Path) -> None:
    out = tmp_path / "a800.json"
    typed = ["import", "caddtree-a800-qwen3-8b", "--counts", "root-included", "--draft-s", "0.0065"]
    assert main([*typed, "--machine", "NVIDIA A800", "--dtype", "bfloat16", "--out", str(out)]) == 0
    shown = output_of("inspect", out)
    assert "WARNING    looks launch-bound: with 1,000 tokens before it, a pass of 512 takes only 1.81 times" in shown
    assert "github.com/ZhangShuai1230/CaDDTree" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["TIMINGS", "--out", "x.json"], "--counts"),
        (["TIMINGS", "--counts", "tree"], "tree"),
        (["TIMINGS", "--counts", "root-included"], "--out"),
        (["none.csv", "--counts", "root-included", "--out", "x.json"], "come with simlab"),
        (["TIMINGS", "--counts", "root-included", "--out", "x.json", "--draft-s", "-1"], "expected seconds"),
        (["TIMINGS", "--counts", "root-included", "--out", "x.json", "--plain-s", "0"], "above 0"),
        (["TIMINGS", "--counts", "root-included", "--out", "x.json", "--batch", "2"], "no timings of 2 texts"),
        (["TIMINGS", "--counts", "root-included", "--out", "."], "names the folder"),
        (["TIMINGS", "--counts", "root-included", "--out", "x.json", "--draft-set", "b"], "no draft set 'b'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], said: str, timings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(timings.parent)
    typed = [str(timings) if one == "TIMINGS" else one for one in arguments]
    assert said in refusal_of("import", *typed)
    assert not Path("x.json").exists()


def test_a_what_if_machine_stands_beside_the_measured_one(trace: Path, cost: Path, tmp_path: Path) -> None:
    """Half the seconds of a pass halve verify_s, and plain decoding's; rows tell the machines apart by their ids."""
    from simlab.studies.inputs.prices import cost_table_of

    out = tmp_path / "results.parquet"
    changes = ("verify*0.5", "tile=16,batch=2")
    typed = ["--cost", str(cost), *(one for change in changes for one in ("--what-if", change))]
    value = replayed(trace, "-p", "ddtree:budget=8/16", *typed, "--out", str(out))
    table = cost_table_of(filled())
    ids = [filled().cost_id, *(what_if(table, parse_what_if(change)).cost_id for change in changes)]
    assert value["cost"] == ids
    rows = {(row["cost_id"], row["policy"]): row for row in value["rows"]}
    headings = [rows[one, "chain"]["prices"] for one in ids]
    assert headings[0].startswith("Made-up CPU")
    assert headings[1].startswith(
        f"WHAT IF verify*0.5,plain*0.5 ({ids[1]}), hypothetical, not measured; from Made-up CPU"
    )
    speeds = {one: [rows[one, f"ddtree:budget={size}"]["tokens_per_s"] for size in (8, 16)] for one in ids}
    assert all(fast > measured for fast, measured in zip(speeds[ids[1]], speeds[ids[0]], strict=True))
    plain = [rows[one, "autoregressive"]["tokens_per_s"] for one in ids]
    assert plain[1] == pytest.approx(2 * plain[0])
    speedups = [rows[one, "ddtree:budget=8"]["speedup"] for one in ids]
    assert speedups[1] < speedups[0]
    results = read_results(out)
    sums = {
        one: results.filter((results["cost_id"] == one) & (results["policy"] == "ddtree:budget=8"))
        .select("rounds", "draft_s", "verify_s")
        .sum()
        .row(0)
        for one in ids
    }
    assert sums[ids[1]] == pytest.approx((*sums[ids[0]][:2], sums[ids[0]][2] / 2))
    assert sums[ids[2]][2] > sums[ids[0]][2]
    text = output_of("replay", "--trace", trace, "-p", "ddtree:budget=8/16", *typed)
    assert "WHAT IF verify*0.5,plain*0.5" in text
    assert "WHAT IF tile=16,batch=2" in text
    assert "hypothetical, not measured" in text
    assert "fastest" in text.lower().rsplit("\n\n", 1)[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what-if", "verfy*2", "--cost", "COST"], "no stage"),
        (["--what-if", "", "--cost", "COST"], "cannot read"),
        (["--what-if", "verify*2"], "there is none"),
        (["--what-if", "batch=8", "--cost", "COST", "-p", "ddtree:budget=16"], "latencies up to 7"),
        (["-p", "caddtree:budget=8,cost=auto:flat", "--cost", "COST"], "'flat' is no view"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: list[str], said: str, trace: Path, cost: Path) -> None:
    typed = [str(cost) if one == "COST" else one for one in arguments]
    assert said in refusal_of("replay", "--trace", trace, *typed)


def test_under_the_convex_view_the_first_stop_is_the_best(trace: Path, cost: Path) -> None:
    """The theorem that the view is for; on a staircase of raw prices the first stop is another one."""
    recipes = [
        f"caddtree:budget=48,look_ahead={ahead},cost={view}" for view in ("auto", "auto:convex") for ahead in (1, 0)
    ]
    typed = [one for recipe in recipes for one in ("-p", recipe)]
    value = replayed(trace, *typed, "--cost", str(cost), "--what-if", "tile=4")
    stairs = value["cost"][1]
    drafted = [
        next(row["nodes_per_round"] for row in value["rows"] if (row["policy"], row["cost_id"]) == (recipe, stairs))
        for recipe in recipes
    ]
    assert drafted[0] != drafted[1]
    assert drafted[2] == drafted[3]


def test_the_view_names_the_policy_and_not_the_prices(trace: Path, cost: Path) -> None:
    """Rounds are priced as measured; policies that see different prices are different policies, by name and id."""
    from simlab.studies.inputs.prices import cost_table_of

    texts = ("caddtree:budget=8", "caddtree:budget=8,cost=auto:convex", f'caddtree:budget=8,cost="{cost}:convex"')
    typed = [one for text in texts for one in ("-p", text)]
    value = replayed(trace, *typed, "--cost", str(cost))
    rows = [row for row in value["rows"] if row["name"] == "caddtree"]
    assert value["cost"] == filled().cost_id
    assert len({row["policy_id"] for row in rows}) == 3
    assert rows[1]["tokens_per_s"] == rows[2]["tokens_per_s"]
    assert convex_view(cost_table_of(filled())).cost_id != filled().cost_id


def test_lines_above_tables_fit() -> None:
    lines = output_of(
        "replay", "--limit", "1", "-p", "ddtree:budget=4", "--what-if", "verify*0.5,tile=64,convex"
    ).splitlines()
    above = lines[: next(place for place, line in enumerate(lines) if line.startswith("policy "))]
    titles = [line for line in lines if "WHAT IF" in line]
    assert titles
    assert all(len(line) <= 100 or len(line.split()) < 5 for line in [*above, *titles])
