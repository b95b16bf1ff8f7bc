"""What a report says, apart from how it looks: verdicts, counts of rounds, drawings of trees, the page's text."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from commands import output_of, refusal_of
from confirm_results import results
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import with_draws

from simlab.analysis.optimize.finalists import judge_finalists
from simlab.analysis.report.page import Chart, Grid, Section, TrustLabel, report_page
from simlab.analysis.report.results import ReportResults
from simlab.analysis.report.rounds import ENDS, RoundCounts
from simlab.analysis.report.speed import policy_table, speed_chart
from simlab.analysis.report.trees import explorer_trees
from simlab.analysis.report.verdict import ReportVerdict, VerdictChoice, verdict_of
from simlab.analysis.table.text import NO_PRICES, PRICES, ends
from simlab.analysis.trees import drawing_rows
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import texts_of
from simlab.sequence_replay import rounds
from simlab.studies.report.build import _prices_label, _text_label
from simlab.studies.report.inputs import ReportInputs
from simlab.testing.random_texts import random_sequence
from simlab.traces.results.files import write_results
from simlab.traces.results.rows import results_frame
from simlab.traces.synthetic import write_synthetic_trace

TABLE = VerdictChoice(None, "on these very prompts", False)
HELD_OUT = VerdictChoice("ddtree:budget=8", "on 40 prompts of dev", True)


def made_rows(
    speeds: dict[str, float], num_prompts: int = 40, noise: float = 0.02, kind: str = "predicted", timed: bool = True
) -> pl.DataFrame:
    """Rows of policies that write so many times as many tokens per second as plain decoding."""
    rng, found = np.random.default_rng(5), []
    for label, speed in speeds.items():
        name, _, typed = label.partition(":")
        settings = dict(part.split("=") for part in typed.split(",") if part)
        for prompt in range(num_prompts):
            seconds = 100 * (1 + prompt % 7) / 50 / (speed * rng.lognormal(0, noise) if label != "ar" else 1)
            found.append(
                {
                    "policy": label,
                    "policy_id": f"id-{label}",
                    "name": name,
                    "settings": json.dumps({key: int(value) for key, value in settings.items()}),
                    "text_id": "t",
                    "draft_id": "d",
                    "cost_id": "c" if timed else None,
                    "sequence": prompt,
                    "prompt_id": f"p{prompt}",
                    "dataset": "made-up",
                    "turn": 0,
                    "sample": 0,
                    "context_length": 30,
                    "stop_reason": "length",
                    "rounds": 100 * (1 + prompt % 7) if label == "ar" else 40 * (1 + prompt % 7),
                    "drafted": 0,
                    "verified": 0,
                    "accepted": 0,
                    "committed": 100 * (1 + prompt % 7),
                    "clipped": 0,
                    **dict.fromkeys(("draft_s", "channel_s", "select_s", "commit_s"), 0.0 if timed else None),
                    "verify_s": seconds if timed else None,
                    "kind": kind,
                    "simlab_version": "0",
                }
            )
    return results_frame(found)


def of_rows(predicted: pl.DataFrame, measured: pl.DataFrame | None = None) -> ReportResults:
    return ReportResults(predicted, predicted.clear() if measured is None else measured)


def test_the_verdict_is_the_speedup_over_autoregressive_decoding_and_the_chain_is_second() -> None:
    speeds = {"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95, "ddtree:budget=16": 1.8, "presto:budget=8": 1.6}
    found = verdict_of(of_rows(made_rows(speeds)), HELD_OUT)
    match = re.match(
        r"(\d\.\d\d) times as fast as autoregressive decoding \[(\d\.\d\d), (\d\.\d\d)\]: ddtree:budget=8\. "
        r"40 held-out prompts; predicted, not measured\.$",
        found.sentence,
    )
    assert match, found.sentence
    ratio, low, high = map(float, match.groups())
    assert low <= 1.95 <= high
    assert low <= ratio <= high
    standing, chain = found.more
    assert "is faster than each of 3 others" in standing
    match = re.match(r"ddtree:budget=8: 1\.(\d\d) × the chain \[1\.(\d\d), 1\.(\d\d)\] on 40 held-out prompts; ", chain)
    assert match, chain
    assert int(match[2]) <= 30 <= int(match[3])


def test_the_best_of_the_table_is_said_to_be_picked_on_its_own_prompts() -> None:
    found = verdict_of(
        of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.9, "presto:budget=8": 2.1})), TABLE
    )
    assert "]: presto:budget=8. 40 prompts" in found.sentence
    assert any("chosen on these very prompts" in one for one in found.more)


@pytest.mark.parametrize(("num_prompts", "is_rough"), [(19, True), (20, False)])
def test_a_verdict_on_few_prompts_says_so(num_prompts: int, is_rough: bool) -> None:
    found = verdict_of(of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.9}, num_prompts)), TABLE)
    assert ("Fewer than 20 prompts: the intervals are rough." in found.more) == is_rough


def test_what_was_measured_stands_beside_the_prediction() -> None:
    predicted = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95}, noise=0.0)
    measured = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.89}, noise=0.0, kind="measured")
    found = verdict_of(of_rows(predicted, measured), HELD_OUT)
    assert "measured 1.89 ×; prediction 3.2 % high." in found.sentence
    assert any("× the chain" in one and "measured 1.26 ×; prediction 3.2 % high." in one for one in found.more)


def test_what_cannot_be_told_apart_has_no_winner() -> None:
    rows = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.502}, noise=0.2)
    found = verdict_of(of_rows(rows), HELD_OUT)
    assert "]: ddtree:budget=8. The chain is as good within the noise. 40 held-out prompts" in found.sentence
    assert re.match(
        r"No winner among ddtree:budget=8 and chain: not significant; minimum detectable difference \d+\.\d % "
        r"\(n = 40 prompts\)\.$",
        found.more[0],
    )
    assert "on 40 held-out prompts, not significant; predicted" in found.more[1]


def test_a_rival_that_is_level_leaves_no_winner_however_far_the_chain_is_behind() -> None:
    rows = made_rows({"ar": 1.0, "chain": 1.2, "ddtree:budget=8": 1.95, "presto:budget=8": 1.949}, noise=0.05)
    found = verdict_of(of_rows(rows), HELD_OUT)
    assert "]: ddtree:budget=8. presto:budget=8 is as good within the noise. " in found.sentence
    assert found.more[0].startswith("No winner among ddtree:budget=8 and presto:budget=8: not significant")
    assert "× the chain" in found.more[1]
    assert "not significant" not in found.more[1]


def test_the_verdict_is_that_of_optimize() -> None:
    results = of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95, "presto:budget=8": 1.9}))
    found = {summary.policy: summary for summary in results.summaries}
    runs = [results.run(found[name]) for name in ("ddtree:budget=8", "presto:budget=8", "chain", "ar")]
    judged = judge_finalists([runs], "tokens_per_s")
    verdict = verdict_of(results, HELD_OUT)
    assert verdict.more[0] == judged.verdict
    assert ("is as good within the noise" in verdict.sentence) is not judged.wins


def test_a_policy_that_does_the_same_as_the_best_is_no_rival() -> None:
    rows = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.9, "price": 1.9}, noise=0.0)
    found = verdict_of(of_rows(rows), HELD_OUT)
    assert "]: ddtree:budget=8. 40 held-out" in found.sentence
    assert not any("price" in one for one in found.more)


def test_equal_runs_and_rows_without_seconds_have_sentences_of_their_own() -> None:
    equal = verdict_of(of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.5}, noise=0.0)), HELD_OUT)
    assert "The chain is as good within the noise." in equal.sentence
    assert "No difference: ddtree:budget=8 and the chain did the same on 40 held-out prompts." in equal.more
    untimed = verdict_of(of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.5}, timed=False)), HELD_OUT)
    assert untimed.sentence.startswith("Acceptance length 2.50")
    assert any(one.startswith("No difference: ") for one in untimed.more)
    alone = verdict_of(of_rows(made_rows({"ar": 1.0, "ddtree:budget=8": 1.5}, noise=0.0)), TABLE)
    assert alone.sentence.startswith("1.50 times as fast as autoregressive decoding")
    assert verdict_of(of_rows(made_rows({"ar": 1.0})), TABLE).best is None


@given(st.integers(0, 2**32 - 1))
def test_counts_of_rounds_are_those_of_rounds_made_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = [random_sequence(rng, most_kept=5)]
    assert texts[0].rows is not None
    depth = texts[0].rows.counts.shape[1]
    (named,) = parse_policies(["ddtree:budget=3"])
    counts = RoundCounts(depth)
    counts.add(texts_of(texts), Replay([(named.policy, None)]).rounds(texts_of(texts))[0])
    ends = dict.fromkeys([str(name) for name in ENDS], 0)
    reached = [0] * (depth + 1)
    for one in rounds(named.policy, texts[0]):
        for at in range(one.num_accepted + 1):
            reached[at] += 1
        if one.clipped:
            ends["text ended"] += 1
        elif one.num_accepted == depth:
            ends["every depth accepted"] += 1
        else:
            rank = int(texts[0].rows.true_ranks[one.position, one.num_accepted])
            limits = [(1, ENDS[2]), (4, ENDS[3]), (16, ENDS[4]), (64, ENDS[5])]
            ends[next((name for limit, name in limits if 0 <= rank < limit), ENDS[6])] += 1
    assert dict(zip(ENDS, counts.ends.tolist(), strict=True)) == ends
    assert sum(array.sum() for array in counts.reached.values()) == sum(reached)
    assert counts.ends.sum() == reached[0]


@given(st.lists(st.integers(0, 30), min_size=0, max_size=40))
def test_no_two_edges_of_a_drawing_cross(draws: list[int]) -> None:
    parents = [-1] + [draw % (index + 1) for index, draw in enumerate(draws)]
    rows, depths = drawing_rows(parents), [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    assert len({(depth, row) for depth, row in zip(depths, rows, strict=True)}) == len(parents)
    edges = [(parent, node) for node, parent in enumerate(parents) if parent >= 0]
    for parent, node in edges:
        for other, child in edges:
            if depths[node] == depths[child] and rows[node] < rows[child]:
                assert rows[parent] <= rows[other]


def test_the_explorer_shows_both_trees_wherever_a_round_of_either_starts() -> None:
    recorded = random_sequence(np.random.default_rng(8), most_kept=6)
    chosen = parse_policies(["ar", "chain", "ddtree:budget=4"])
    values = json.loads(json.dumps(explorer_trees(chosen, None, [recorded])))
    (text,) = values["texts"]
    own = {one.position for named in chosen for one in rounds(named.policy, recorded)}
    for named, found in zip(chosen, text["rounds"], strict=True):
        assert {int(at) for at in found} == own
        for one in rounds(named.policy, recorded):
            parents, tokens, probabilities, rows, path, starts, left_out = found[str(one.position)]
            assert starts == 1
            assert left_out == 0
            assert parents[1:] == one.tree.parents.tolist()[1:]
            assert [values["tokens"][place] for place in tokens] == [str(token) for token in one.tree.tokens.tolist()]
            assert path == list(one.path)
            assert len(rows) == len(probabilities) == len(parents)


def nasty_page() -> str:
    """A page whose names try to end their elements."""
    nasty = "</script><script>alert('$title & <b>')</script>"
    chart = Chart("one", go.Figure(go.Scatter(x=[1], y=[2], name=nasty)), nasty, nasty)
    table, marks = Grid([nasty], [[nasty]]), {nasty: TrustLabel(nasty, nasty)}
    sections = [Section("s", nasty, nasty, [nasty, {"policies": [nasty], "texts": []}])]
    return report_page(nasty, [nasty, nasty], table, chart, marks, nasty, sections, nasty)


def test_names_cannot_break_out_of_the_page() -> None:
    page = nasty_page()
    assert "<script>alert(" not in page
    figures = re.search(r'id="data-figures">(.*?)</script>', page, re.DOTALL)
    assert figures
    assert "alert('$title" in json.loads(figures[1])["one"]["data"][0]["name"]


def test_a_report_of_a_made_up_trace_without_prices(tmp_path: Path) -> None:
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=6, length=30)
    out = tmp_path / "new" / "report.html"
    said = output_of("report", "--trace", trace, "-p", "ddtree:budget=2/4", "--out", out)
    assert "Sections about latency need the cost file" in said
    assert "Acceptance length " in said
    assert not list(out.parent.glob("*.part"))
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\';' in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.parquet"], "expected a result file at nothing.parquet"),
        (["--out", "."], "--out names the folder"),
        (["r.parquet", "-p", "chain"], "RESULTS hold what they hold"),
        (["--optimum", "nothing.json", "--limit", "1", "-p", "chain"], "expected a choice of policies at nothing.json"),
    ],
)
def test_what_cannot_be_reported_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal_of("report", *arguments)
    assert not list(tmp_path.iterdir())


def test_results_of_other_texts_than_the_traces_are_refused(tmp_path: Path) -> None:
    committed, rounds = pl.col("committed"), pl.col("rounds")
    sums = {"drafted": committed, "verified": committed + rounds, "accepted": committed - rounds}
    write_results(tmp_path / "r.parquet", made_rows({"ar": 1.0, "chain": 1.5}).with_columns(**sums))
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=4, length=20)
    assert "the results are of t" in refusal_of(
        "report", tmp_path / "r.parquet", "--trace", trace, "--out", tmp_path / "r.html"
    )
    assert "give it with --trace" in output_of("report", tmp_path / "r.parquet", "--out", tmp_path / "r.html")
    assert not math.isnan((tmp_path / "r.html").stat().st_size)


def test_no_verdict_on_a_text_hides_another_under_the_same_label() -> None:
    rows = [({"policy": "chain", "lossless": verdict},) for verdict in ("FAILED", "exact", "exact")]
    confirmed: Any = tuple(SimpleNamespace(rows=row) for row in rows)
    found = made_rows({"ar": 1.0, "chain": 1.5})
    inputs = ReportInputs(
        rows=found,
        results=of_rows(found),
        trace=None,
        draft=None,
        prices=None,
        optimum=None,
        confirmed=confirmed,
        missing=(),
        wanted=(),
    )
    assert inputs.judged == (("chain", "FAILED"), ("chain", "exact"))
    assert _text_label(inputs).value == "FAILED"


@pytest.mark.parametrize(("cost_id", "value"), [("c", "match the machine"), ("another", "of these models")])
def test_prices_match_the_machine_only_if_they_are_those_of_the_confirmation(cost_id: str, value: str) -> None:
    predicted = made_rows({"ar": 1.0, "chain": 1.5})
    ran = SimpleNamespace(cost_id=cost_id)
    prices = SimpleNamespace(heading="a CPU", file=None)
    inputs = SimpleNamespace(results=of_rows(predicted), prices=prices, confirmed=(ran,))
    assert _prices_label(inputs).value == value  # type: ignore[arg-type]


@pytest.mark.parametrize(("cost_id", "value"), [("c", "not at hand"), ("what-if-c", "hypothetical, not measured")])
def test_prices_that_are_not_at_hand_are_not_called_measured(cost_id: str, value: str) -> None:
    predicted = made_rows({"ar": 1.0, "chain": 1.5}).with_columns(pl.lit(cost_id).alias("cost_id"))
    label = _prices_label(SimpleNamespace(results=of_rows(predicted), prices=None, confirmed=()))  # type: ignore[arg-type]
    assert (label.value, label.state) == (value, "caution")
    assert cost_id in label.detail
    assert "Measured" not in label.detail


# A report beside the noise of the latency profile: the verdict, the table, and what pointing at a mark shows


SPEEDS = {"autoregressive": 10.0, "chain": 14.0, "ddtree:budget=8": 20.0}


def predicted(noise: float | None) -> ReportResults:
    """Made-up predictions whose seconds have noise of this size for each policy; None: it is not known."""
    rows = results(SPEEDS).filter(pl.col("kind") == "predicted")
    own = pl.Series(np.random.default_rng(1).lognormal(0, 0.05, len(rows)))
    rows = rows.with_columns(pl.col("verify_s") * own)
    if noise is not None:
        rng = np.random.default_rng(3)
        factors = {label: rng.lognormal(0, noise, NUM_DRAWS) for label in rows["policy"].unique(maintain_order=True)}
        pairs = zip(rows["policy"], rows["verify_s"], strict=True)
        rows = with_draws(rows, [(seconds * factors[policy]).tolist() for policy, seconds in pairs])
    return ReportResults(rows, rows.clear())


def verdict(noise: float | None) -> ReportVerdict:
    return verdict_of(predicted(noise), HELD_OUT)


def test_the_verdict_has_both_intervals() -> None:
    found = verdict(0.02)
    assert found.sentence.startswith("2.00 times as fast as autoregressive decoding [")
    over_chain = next(one for one in found.more if " × the chain [" in one)
    assert "] (prices [1." in over_chain
    for said in (found.sentence, over_chain):
        assert said.endswith("30 held-out prompts; predicted, not measured.")
    assert not any("prices" in said for said in verdict(None).more)


def test_a_difference_within_the_noise_of_prices_is_no_win() -> None:
    found = verdict(0.5)
    assert "ddtree:budget=8, which is not significantly faster. The chain is as good" in found.sentence
    assert any("within the noise of the latency profile" in one for one in found.more)


def test_the_table_and_the_marks_show_both_intervals() -> None:
    found = predicted(0.02)
    grid = policy_table(found, None)
    assert grid.heads[1:3] == ["predicted speedup [95 %]", "prices [95 %]"]
    assert PRICES in grid.caption
    (tree,) = (summary for summary in found.summaries if summary.policy == "ddtree:budget=8")
    (row,) = (row for row in grid.rows if row[0] == "ddtree:budget=8")
    assert row[2] == ends(tree.speed.price_interval) != "-"
    drawn = speed_chart(found).figure.to_dict()["data"]
    hover = [text for trace in drawn for text in trace.get("hovertemplate", ())]
    assert any(text.endswith(f"<br>prices {row[2]}") and "<br>prompts [" in text for text in hover)
    assert NO_PRICES["predicted"] in policy_table(predicted(None), None).caption
