"""Places of the true path, gaps, waste and slices, against plain Python."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scoring_oracles as oracle
from hypothesis import given
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts
from order_checks import texts

from simlab.analysis.scoring.gap_and_waste import SIBLINGS, policy_figures, wrong_siblings
from simlab.analysis.scoring.path_places import TruePlaces, order_figures, path_coverage, root_areas
from simlab.analysis.scoring.reliability import (
    ANY,
    OFF_SPINE,
    ON_SPINE,
    TRUE_PREFIX,
    EdgeSlice,
    ScoredEdges,
    calibration,
    loss_against,
    reliability,
)
from simlab.analysis.scoring.score import Scoring, ScoringLimits, by_prompts, score_trace
from simlab.analysis.scoring.text import calibration_verdict, confidence
from simlab.analysis.statistics.intervals import Interval, intervals_of, prompt_spread, ratios, share_intervals
from simlab.analysis.table.estimates import NO_FIGURE, Estimate, sum_of_distances
from simlab.draft import Prompt
from simlab.policies.composition import Composition
from simlab.policies.fits.edge_sums import no_edge_sums
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import ACCEPTED, DRAFTED, ROUNDS, draft_source, hindsight_rounds, rounds


def test_slices_add_up_and_models_are_compared_on_the_same_nodes() -> None:
    recorded = next(text for text in texts(21, 9) if len(text.text) > 8)
    artefacts = FullArtefacts()
    policies = parse_policies(["ddtree:budget=5", "calibrated:budget=5", "sequoia:budget=5"], artefacts)
    scored = score_trace(policies, [texts_of([recorded])], ScoringLimits(9, (3, 9), 9))
    marginal = scored.edges[0]
    parts = [calibration(marginal, EdgeSlice(place)) for place in (ON_SPINE, OFF_SPINE)]
    whole, everything = (calibration(marginal, EdgeSlice(place)) for place in (TRUE_PREFIX, ANY))
    assert whole is not None
    assert everything is not None
    assert sum(part["num_edges"] for part in parts if part) == whole["num_edges"] <= everything["num_edges"]
    by_rank = [calibration(marginal, EdgeSlice(TRUE_PREFIX, rank=rank)) for rank in ("0", "1", "2-3", "4-7", "8+")]
    for name in ("num_edges", "expected_per_node"):
        assert sum(one[name] for one in by_rank if one) == pytest.approx(whole[name])
    assert loss_against(marginal, marginal, EdgeSlice()) is not None
    with pytest.raises(ValueError, match="no reliability curve"):
        reliability(scored.edges[1], EdgeSlice(ANY))


def scored_texts(typed: Sequence[str], recorded: Sequence[RecordedSequence], most: int) -> Scoring:
    """Each text a prompt of its own."""
    policies = parse_policies(typed, FullArtefacts())
    renamed = [
        replace(text, index=index, prompt=Prompt(f"p{index}", "made-up", 0, 0, text.prompt.token_ids))
        for index, text in enumerate(recorded)
    ]
    return score_trace(policies, [texts_of([sequence]) for sequence in renamed], ScoringLimits(most, (2, most), 9))


DEEP = [
    text
    for text in texts(31, 400, 5)
    if text.rows is not None and text.rows.counts.shape[1] == 4 and len(text.text) > 4
]


def test_places_areas_and_coverage_by_listing() -> None:
    recorded, most = DEEP[:8], 9
    assert len(recorded) == 8
    typed = ["ddtree:budget=5", "calibrated:budget=5", "presto:budget=5"]
    scored = scored_texts(typed, recorded, most)
    places = scored.places
    assert places is not None
    assert places.labels == ("ddtree", "calibrated", "presto")
    for number, named in enumerate(parse_policies(typed, FullArtefacts())):
        assert isinstance(named.policy, Composition)
        order = named.policy.order
        areas: list[float | None] = []
        needed: dict[int, list[float]] = {}
        for sequence in recorded:
            source = draft_source(order.needs, sequence)
            for t in range(len(sequence.text) - 1):
                listed = oracle.paths_of(order.nodes(source(t), most))
                follows = tuple(sequence.text[t + 1 :].tolist())
                areas.append(oracle.area(listed, follows))
                for depth in range(1, min(4, len(follows)) + 1):
                    path = follows[:depth]
                    needed.setdefault(depth, []).append(listed.index(path) + 1 if path in listed else math.inf)
        has_both, found = root_areas(places.insertions[number], places.available[number], most)
        assert has_both.tolist() == [area is not None for area in areas]
        assert found[has_both].tolist() == pytest.approx([area for area in areas if area is not None])
        figures = order_figures(places)[number]
        assert figures["auc"].value == pytest.approx(np.mean([area for area in areas if area is not None]))
        for covered in path_coverage(places):
            if covered["order"] == places.labels[number]:
                nodes = sorted(needed[covered["depth"]])
                assert covered["roots"] == len(nodes)
                for cap in (2, most):
                    within = np.mean([n <= cap for n in nodes])
                    assert covered[f"covered_share_{cap}"].value == pytest.approx(within)
                for told, share in ((covered["nodes_median"], 0.5), (covered["nodes_90_percent"], 0.9)):
                    at = nodes[math.ceil(share * len(nodes)) - 1]
                    assert told == (None if math.isinf(at) else at)


def test_expected_and_accepted_tokens_and_the_excess_over_an_oracle() -> None:
    insertions = np.array([[[1, 4], [2, 65535], [3, 9]], [[1, 2], [1, 2], [65535, 65535]]], np.uint16)
    expected = np.array([[[0.5, 1.0], [0.5, 1.0], [0.9, 0.9]], np.full((3, 2), np.nan)])
    places = TruePlaces(
        labels=("one", "two"),
        most=9,
        caps=(3, 9),
        num_prompts=3,
        prompts=np.arange(3),
        left=np.array([5, 2, 1]),
        insertions=insertions,
        available=np.full((2, 3), 9, np.int32),
        expected=expected,
    )
    figures, two = order_figures(places)
    assert figures["excess_nodes"].value == pytest.approx((1 / 1 * 4 / 2 * 2 / 1) ** (1 / 3))
    assert two["excess_nodes"].value == pytest.approx(1)
    by_hand = {3: (0.5, 1.0, -0.5), 9: (1.0, 1.5, 1 - 1.5 / 1.5 - 1 / 3)}
    for cap, (promised, there, share) in by_hand.items():
        assert (figures[f"expected_accepted_{cap}"], figures[f"accepted_{cap}"]) == pytest.approx((promised, there))
        assert figures[f"overstated_share_{cap}"].value == pytest.approx(share)
    assert math.isnan(two["expected_accepted_3"])
    first = places.take(np.array([1]))
    assert first.prompts.tolist() == [0]
    assert path_coverage(first)[0]["nodes_median"] == 2


def test_what_nodes_are_spent_on_and_how_much_of_the_gap_is_closed() -> None:
    recorded = DEEP[:8]
    typed = ["ddtree:budget=3/9", "chain", "calibrated:budget=9"]
    scored = scored_texts(typed, recorded, 9).rounds
    for place, named in enumerate(parse_policies(typed, FullArtefacts())):
        _, own, bound = scored.between(place)
        for prompt, sequence in enumerate(recorded):
            spent = np.zeros(3, int)
            found = list(rounds(named.policy, sequence))
            for each in found:
                paths: list[oracle.Path] = [()]
                for token, parent in zip(each.tree.tokens[1:].tolist(), each.tree.parents[1:].tolist(), strict=True):
                    paths.append((*paths[parent], token))
                spent += oracle.spent(paths[1:], tuple(sequence.text[each.position + 1 :].tolist()))
            row = own[prompt]
            assert row[ROUNDS] == len(found)
            assert [row[ACCEPTED], row[SIBLINGS], row[DRAFTED] - row[ACCEPTED] - row[SIBLINGS]] == spent.tolist()
            assert row[SIBLINGS] == wrong_siblings(found)
        fewest = [sum(1 for _ in hindsight_rounds(sequence, named.policy.budget)) for sequence in recorded]
        assert bound[:, ROUNDS].tolist() == fewest
    figures = policy_figures(scored)
    assert [figure["policy"] for figure in figures] == [
        "ddtree:budget=3",
        "ddtree:budget=9",
        "chain",
        "calibrated:budget=9",
    ]
    small, large, chain, calibrated = (figure["gap_closed_share"].value for figure in figures)
    assert chain == pytest.approx(0)
    assert figures[3]["gap_closed_against_first"].value == pytest.approx(calibrated - large)
    assert figures[1]["gap_closed_against_first"] is NO_FIGURE
    for figure in figures:
        speeds = [figure[f"{name}tokens_per_s"] for name in ("", "chain_", "hindsight_")]
        assert (speeds, figure["speed_gap_closed_share"]) == ([None] * 3, NO_FIGURE)
        assert sum(figure[f"{name}_share"].value for name in ("accepted", "sibling", "below_wrong")) == pytest.approx(1)
    length, of_chain, of_bound = (figures[0][f"{name}acceptance_length"] for name in ("", "chain_", "hindsight_"))
    assert small == pytest.approx((length - of_chain) / (of_bound - of_chain))


def test_datasets_are_parts_of_the_whole() -> None:
    scored = scored_texts(["ddtree:budget=3"], DEEP[:6], 9)
    left, right = scored.take(np.array([0, 2, 4])), scored.take(np.array([1, 3, 5]))
    assert left.prompts == (("made-up", "p0"), ("made-up", "p2"), ("made-up", "p4"))
    for whole, array, other in zip(scored.edges[0].sums, left.edges[0].sums, right.edges[0].sums, strict=True):
        np.testing.assert_allclose(whole.sum(axis=0), array.sum(axis=0) + other.sum(axis=0))
    assert scored.places is not None
    assert left.places is not None
    assert len(left.places.prompts) < len(scored.places.prompts)
    assert scored.by_dataset()[0][1].prompts == scored.prompts


def test_an_edge_model_is_scored_once_and_labels_stay_different() -> None:
    typed = ["ddtree:budget=3/5", "eagle2-beam:total=4", "entropy-width:budget=4/6"]
    policies = parse_policies([typed[0], typed[2]], FullArtefacts())
    recorded = DEEP[0]
    found = score_trace(policies, [texts_of([recorded])], ScoringLimits(9, (9,), 9))
    assert [edge.label for edge in found.edges] == ["ddtree"]
    assert found.places is not None
    assert len(set(found.places.labels)) == len(found.places.labels)


# Reliability curves and calibration errors on planted truth, and how they vary over prompts


def planted(num_prompts: int, wrong: float, seed: int = 1, per_prompt: int = 400) -> ScoredEdges:
    """Nodes with one candidate each, at depth 1, whose frequency is its probability to the power ``wrong``."""
    generator = np.random.default_rng(seed)
    sums = no_edge_sums(num_prompts, 1)
    for prompt in range(num_prompts):
        probs = generator.uniform(0.02, 0.98, per_prompt)
        hits = generator.random(per_prompt) < probs**wrong
        bins = np.clip((np.log(probs / (1 - probs)) + 16) * 8, 0, 255).astype(int)
        for prob, hit, bin_ in zip(probs, hits, bins, strict=True):
            values = np.array([1.0, prob, hit])
            sums.nodes[prompt, 0, 0] += 1
            loss = -math.log(prob if hit else 1 - prob)
            sums.cells[prompt, 0, 0, 0] += [*values, loss, (prob - hit) ** 2]
            sums.by_depth[prompt, 0, 0, bin_] += values
            sums.by_rank[prompt, 0, 0, bin_] += values
    return ScoredEdges("planted", True, False, sums)


def test_a_calibrated_model_has_no_error_beyond_noise_and_an_overconfident_one_has_its_own() -> None:
    fair, bold = planted(50, 1.0), planted(50, 2.0, seed=2)
    good, bad = (calibration(edges, EdgeSlice(ON_SPINE)) for edges in (fair, bold))
    assert good is not None
    assert bad is not None
    fair_error, bold_error = good["ece_per_node"], bad["ece_per_node"]
    assert fair_error.interval.low == 0
    assert fair_error.value < good["ece_per_node_raw"]
    assert good["excess_per_node"].interval.low < 0 < good["excess_per_node"].interval.high
    true_error = float(np.mean([p - p**2 for p in np.linspace(0.02, 0.98, 10_001)]))
    assert bold_error.interval.low < true_error < bold_error.interval.high
    assert bad["excess_per_node"].value == pytest.approx(true_error, abs=0.02)
    assert bad["excess_per_node"].interval.low > 0.1
    curve = reliability(bold, EdgeSlice(ON_SPINE))
    weights = [one["weight_share"] for one in curve]
    assert weights == pytest.approx([0.1] * 10, abs=0.03)
    assert sum(weights) == pytest.approx(1)
    for one in curve:
        observed = one["observed"]
        assert abs(observed.value - one["predicted"] ** 2) < 0.05
        assert observed.interval.low < observed.value < observed.interval.high


def test_debiased_errors_cover_the_truth_on_few_noisy_prompts() -> None:
    """A model that is right has an error of 0; the raw one is never near, the corrected one's interval holds 0."""
    found = [calibration(planted(40, 1.0, seed, 12), EdgeSlice(ON_SPINE)) for seed in range(20)]
    errors = [one["ece_per_node"] for one in found if one is not None]
    raw = [one["ece_per_node_raw"] for one in found if one is not None]
    assert sum(error.interval.low == 0 for error in errors) >= 17
    assert np.mean(raw) > 0.03
    assert np.mean([error.value for error in errors]) < 0.5 * np.mean(raw)


def test_spreads_of_sums_over_prompts() -> None:
    sums = np.array([[1.0, 2.0], [3.0, 3.0], [0.0, 0.0]])
    spread = prompt_spread(sums, ratios)
    assert spread.whole.tolist() == [1.25]
    assert spread.without_each[:, 0].tolist() == pytest.approx([1.0, 2.0, 1.25])
    assert spread.num_effective.tolist() == pytest.approx([1 / (1 / 16 + 9 / 16)])
    with pytest.raises(ValueError, match="at least one prompt"):
        prompt_spread(sums[:0], ratios)
    raw, few = sum_of_distances(spread)
    assert raw == 1.25
    assert 0 <= few.interval.low <= few.value <= few.interval.high
    (cut,) = share_intervals(prompt_spread(np.array([[4.0, 4.0], [4.0, 3.0], [4.0, 4.0]]), ratios))
    assert 0 < cut.low < 11 / 12 < cut.high == 1
    (alone,) = intervals_of(prompt_spread(sums[:1], ratios))
    assert math.isnan(alone.low)


@given(value=st.floats(-0.5, 0.5), half=st.floats(0.0, 0.5))
def test_confidence_is_the_side_of_the_interval(value: float, half: float) -> None:
    said = confidence(Estimate(value, Interval(value - half, value + half)))
    assert said == (
        "overconfident" if value - half > 0 else "underconfident" if value + half < 0 else "not significant"
    )
    assert confidence(Estimate(value)) == confidence(None) == "not known"


@pytest.mark.parametrize(("wrong", "answer"), [(1.0, "Not significant on"), (2.0, "No: overconfident on")])
def test_the_verdict_on_calibration_is_of_the_numbers_beside_it(wrong: float, answer: str) -> None:
    model = planted(40, wrong)
    text = " ".join(calibration_verdict([model]).split())
    for place, name in ((ON_SPINE, "on the greedy path"), (OFF_SPINE, "off it")):
        found = calibration(model, EdgeSlice(place, rank="0"))
        if found is not None:
            excess = found["excess_per_node"]
            said = f"{name}: predicted {found['expected_per_node']:.3f}, observed {found['true_per_node']:.3f}"
            assert f"{said}, difference {excess:3} ({confidence(excess)})" in text
    assert f"calibrated? {answer}" in text
    assert calibration_verdict([replace(model, has_probabilities=False)]) == ""


def test_parts_hold_whole_prompts_and_every_text() -> None:
    names = "aabaccb"
    recorded = [replace(DEEP[0], prompt=replace(DEEP[0].prompt, dataset="made-up", prompt_id=name)) for name in names]
    some = [texts_of([sequence]) for sequence in recorded]
    num_texts = {("made-up", name): names.count(name) for name in names}
    parts = list(by_prompts(some, num_texts))
    assert [len(part) for part in parts] == [7]
    assert [len(part) for part in by_prompts(some[:2] + some[3:6], num_texts | {("made-up", "a"): 3})] == [3, 2]
    assert [len(part) for part in by_prompts(some[:5], num_texts)] == [5]  # some are not read
