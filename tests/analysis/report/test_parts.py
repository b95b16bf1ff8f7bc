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
from made_up_rows import result_row, seconds
from summary_rows import with_draws
from synthetic_traces import write_synthetic_trace

from simlab.analysis.optimize.finalists import judge_finalists
from simlab.analysis.report.page import Chart, Grid, Section, TrustLabel, report_page
from simlab.analysis.report.results import ReportResults
from simlab.analysis.report.rounds import ENDS, RoundCounts
from simlab.analysis.report.trees import explorer_trees
from simlab.analysis.report.verdict import VerdictChoice, verdict_of
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

TABLE = VerdictChoice(None, "on these very prompts", False)
HELD_OUT = VerdictChoice("ddtree:budget=8", "on 40 prompts of dev", True)


def made_rows(
    speeds: dict[str, float], num_prompts: int = 40, noise: float = 0.02, kind: str = "predicted", timed: bool = True
) -> pl.DataFrame:
    """Rows of policies that write so many times as many tokens per second as plain decoding."""
    rng, rows = np.random.default_rng(5), []
    for label, speed in speeds.items():
        settings = dict(part.split("=") for part in label.partition(":")[2].split(",") if part)
        for prompt in range(num_prompts):
            size = 1 + prompt % 7
            verify_s = 2 * size / (speed * rng.lognormal(0, noise) if label != "ar" else 1)
            counts = {"rounds": (100 if label == "ar" else 40) * size, "committed": 100 * size}
            timed_s = {"cost_id": "c", **seconds(verify_s)} if timed else {}
            own = {"settings": json.dumps({key: int(value) for key, value in settings.items()}), "kind": kind}
            place = {"text_id": "t", "sequence": prompt, "prompt_id": f"p{prompt}"}
            rows.append(result_row(label, **place, **counts, **timed_s, **own))
    return results_frame(rows)


def of_rows(predicted: pl.DataFrame, measured: pl.DataFrame | None = None) -> ReportResults:
    return ReportResults(predicted, predicted.clear() if measured is None else measured)


def test_the_verdict_is_the_speedup_over_autoregressive_decoding_and_the_chain_is_second() -> None:
    speeds = {"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95, "ddtree:budget=16": 1.8, "presto:budget=8": 1.6}
    _, sentence, (standing, chain) = verdict_of(of_rows(made_rows(speeds)), HELD_OUT)
    match = re.match(
        r"(\d\.\d\d) times as fast as autoregressive decoding \[(\d\.\d\d), (\d\.\d\d)\]: ddtree:budget=8\. "
        r"40 held-out prompts; predicted, not measured\.$",
        sentence,
    )
    assert match, sentence
    ratio, low, high = map(float, match.groups())
    assert low <= 1.95 <= high
    assert low <= ratio <= high
    assert "is faster than each of 3 others" in standing
    match = re.match(r"ddtree:budget=8: 1\.(\d\d) × the chain \[1\.(\d\d), 1\.(\d\d)\] on 40 held-out prompts; ", chain)
    assert match, chain
    assert int(match[2]) <= 30 <= int(match[3])


AHEAD = {"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.9}
NO_WINNER = r"not significant; minimum detectable difference \d+\.\d % \(n = 40 prompts\)\.$"


@pytest.mark.parametrize(
    ("speeds", "noise", "choice", "said", "more"),
    [
        (
            AHEAD | {"presto:budget=8": 2.1},
            0.02,
            TABLE,
            r"\]: presto:budget=8\. 40 prompts",
            ["chosen on these very prompts"],
        ),
        # The chain is level; then another rival, however far the chain is behind.
        (
            AHEAD | {"ddtree:budget=8": 1.502},
            0.2,
            HELD_OUT,
            r"\]: ddtree:budget=8\. The chain is as good within the noise\. 40 held-out prompts",
            [f"^No winner among ddtree:budget=8 and chain: {NO_WINNER}", "prompts, not significant; predicted"],
        ),
        (
            {"ar": 1.0, "chain": 1.2, "ddtree:budget=8": 1.95, "presto:budget=8": 1.949},
            0.05,
            HELD_OUT,
            r"\]: ddtree:budget=8\. presto:budget=8 is as good within the noise\. ",
            [f"^No winner among ddtree:budget=8 and presto:budget=8: {NO_WINNER}", r"the chain \[[^s]*prompts; "],
        ),
        # Who does the same as the best is no rival.
        (AHEAD | {"price": 1.9}, 0.0, HELD_OUT, r"\]: ddtree:budget=8\. 40 held-out", []),
        (
            AHEAD | {"chain": 1.9},
            0.0,
            HELD_OUT,
            r"The chain is as good within the noise\.",
            ["^No difference: ddtree:budget=8 and the chain did the same on 40 held-out prompts\\.$"],
        ),
        ({"ar": 1.0, "ddtree:budget=8": 1.5}, 0.0, TABLE, "^1.50 times as fast as autoregressive decoding", []),
    ],
)
def test_what_is_level_is_no_winner(
    speeds: dict[str, float], noise: float, choice: VerdictChoice, said: str, more: list[str]
) -> None:
    _, sentence, added = verdict_of(of_rows(made_rows(speeds, noise=noise)), choice)
    assert re.search(said, sentence)
    assert all(any(re.search(pattern, one) for one in added) for pattern in more)
    assert not any("price" in one for one in added)


def test_rows_without_seconds_have_sentences_of_their_own() -> None:
    rows = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.5}, timed=False)
    _, sentence, more = verdict_of(of_rows(rows), HELD_OUT)
    assert sentence.startswith("Acceptance length 2.50")
    assert any(one.startswith("No difference: ") for one in more)
    assert verdict_of(of_rows(made_rows({"ar": 1.0})), TABLE)[0] is None


@pytest.mark.parametrize(("num_prompts", "is_rough"), [(19, True), (20, False)])
def test_a_verdict_on_few_prompts_says_so(num_prompts: int, is_rough: bool) -> None:
    _, _, more = verdict_of(of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.9}, num_prompts)), TABLE)
    assert ("Fewer than 20 prompts: the intervals are rough." in more) == is_rough


def test_what_was_measured_stands_beside_the_prediction() -> None:
    predicted = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95}, noise=0.0)
    measured = made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.89}, noise=0.0, kind="measured")
    _, sentence, more = verdict_of(of_rows(predicted, measured), HELD_OUT)
    assert "measured 1.89 ×; prediction 3.2 % high." in sentence
    assert any("× the chain" in one and "measured 1.26 ×; prediction 3.2 % high." in one for one in more)


def test_the_verdict_is_that_of_optimize() -> None:
    results = of_rows(made_rows({"ar": 1.0, "chain": 1.5, "ddtree:budget=8": 1.95, "presto:budget=8": 1.9}))
    found = {summary.policy: summary for summary in results.summaries}
    runs = [results.run(found[name]) for name in ("ddtree:budget=8", "presto:budget=8", "chain", "ar")]
    judged = judge_finalists([runs], "tokens_per_s")
    _, sentence, more = verdict_of(results, HELD_OUT)
    assert more[0] == judged.verdict
    assert ("is as good within the noise" in sentence) is not judged.wins


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


def test_a_difference_within_the_noise_of_prices_is_no_win() -> None:
    rows = results({"autoregressive": 10.0, "chain": 14.0, "ddtree:budget=8": 20.0}).filter(
        pl.col("kind") == "predicted"
    )
    rng = np.random.default_rng(3)
    factors = {label: rng.lognormal(0, 0.5, NUM_DRAWS) for label in rows["policy"].unique(maintain_order=True)}
    uneven = rows.with_columns(verify_s=pl.col("verify_s") * pl.Series(rng.lognormal(0, 0.05, len(rows))))
    pairs = zip(uneven["policy"], uneven["verify_s"], strict=True)
    rows = with_draws(uneven, [(seconds * factors[policy]).tolist() for policy, seconds in pairs])
    _, sentence, more = verdict_of(ReportResults(rows, rows.clear()), HELD_OUT)
    assert "ddtree:budget=8, which is not significantly faster. The chain is as good" in sentence
    assert any("within the noise of the latency profile" in one for one in more)
