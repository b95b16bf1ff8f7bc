"""EAGLE-4's widths: against its rule in plain Python and, thorough, against its released cost model."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from depth import examples
from engine_wheels import wheel_files
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from served_oracle import random_texts

from simlab.arrays import Doubles, Longs
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.grid import path_weight
from simlab.policies.engine.lock_step import rounds_of_policy, serve, with_filler_requests
from simlab.policies.named.served.eagle4 import Eagle4, VerifyWidths
from simlab.policies.orders.node_order import OrderLayer
from simlab.sequence_replay import rounds

HARNESS = "eagle-harness==0.1.3"
SIZES = [0, 7, 15, 31, 63]


def prices(ratios: list[float]) -> CostTable:
    """Passes that cost these shares of a plain one at `SIZES`, straight in between."""
    verify = np.interp(np.arange(64), SIZES, ratios)[None] * 0.01
    others = {stage: np.full((1, 64), 0.001) for stage in GRID_STAGES if stage != "verify"}
    return CostTable("made-up", np.array([64]), {**others, "verify": verify, PLAIN: np.full((1, 1), 0.01)})


def random_rounds(seed: int) -> tuple[CostTable, Doubles]:
    """Prices, and path scores ``[20, 64]`` of rounds with from no to 63 nodes."""
    chance = np.random.default_rng(seed)
    ratios = 1.0 + np.cumsum(np.concatenate([[0.0], chance.choice([0.01, 0.1, 0.5], 4) * chance.random(4)]))
    scores = np.concatenate([np.zeros((20, 1)), -np.sort(chance.exponential(chance.uniform(1, 5), (20, 63)))], axis=1)
    scores = np.round(scores * 2**16) / 2**16
    for row in scores:
        row[1 + int(chance.choice([0, 5, 7, 20, 40, 63])) :] = -np.inf
    return prices(ratios.tolist()), scores


class Plain:
    """The rule for one text, from its description."""

    def __init__(self, cost: CostTable, threshold: float, most: int) -> None:
        self.ratios = [float(cost.seconds["verify"][0, size] / cost.seconds["verify"][0, 0]) for size in SIZES]
        self.threshold, self.most = threshold, most
        self.before: list[float] | None = None
        self.widths: list[int] = []

    def size(self, scores: Doubles) -> int:
        there = scores[np.isfinite(scores)][: self.most + 1]
        present = np.cumsum(path_weight(there)).tolist()
        expected, self.before = present if self.before is None else self.before, present
        last = self.widths[-5:]
        usual = next((width for width in set(last) if last.count(width) >= 3), -1)
        sizes = [size for size in SIZES if size < min(len(present), len(expected), self.most + 1)]
        if len(sizes) == 1:
            self.widths.append(1)
            return 0
        best = sizes[1]
        for index, wide in enumerate(sizes):
            fallen, worth = wide, index > 0
            for other, narrow in list(enumerate(sizes))[:index]:
                delta = self.ratios[index] - self.ratios[other]
                least = self.threshold * (1.05 if usual > fallen + 1 else 0.95)
                if delta > 0.04 and (expected[wide] - expected[narrow]) / delta < least:
                    worth, fallen = False, sizes[1]
            best = max(best, wide) if worth else best
        self.widths.append(best + 1)
        return best


@settings(max_examples=examples(200, quick=40))
@given(st.integers(0, 1 << 30), st.sampled_from([0.5, 2.4]), st.sampled_from([7, 20, 63]))
def test_widths_are_those_of_the_plain_rule(seed: int, threshold: float, most: int) -> None:
    cost, scores = random_rounds(seed)
    rule, remembering = VerifyWidths(most, cost, threshold), Plain(cost, threshold, most)
    contexts, memory = np.full(len(scores), 64), rule.memory()
    alone = [Plain(cost, threshold, most).size(row) for row in scores]
    layer = OrderLayer(
        np.zeros((len(scores), 0), np.uint16), np.isfinite(scores).sum(axis=1, dtype=np.int32) - 1, scores
    )
    assert rule.sizes(layer, contexts).tolist() == rule.shares(scores, contexts).tolist() == alone
    found = [int(memory.shares(np.arange(1), row[None], contexts[:1])[0]) for row in scores]
    assert found == [remembering.size(row) for row in scores]


def test_dear_passes_keep_the_narrowest_and_free_ones_take_the_widest() -> None:
    scores = np.log(np.concatenate([[1.0], np.full(63, 0.05)]))[None]
    at = np.array([64])
    assert VerifyWidths(63, prices([1, 2, 3, 4, 5]), 2.4).shares(scores, at).tolist() == [7]
    assert VerifyWidths(63, prices([1, 1, 1, 1.03, 1.03]), 2.4).shares(scores, at).tolist() == [63]
    # 24 tokens more, 1.2 expected, for half a plain pass are 2.4; for 0.6 of it they are 2.0.
    assert VerifyWidths(31, prices([1, 1, 1, 1.33, 9]), 2.4).shares(scores, at).tolist() == [31]
    assert VerifyWidths(31, prices([1, 1, 1, 1.4, 9]), 2.4).shares(scores, at).tolist() == [15]
    assert VerifyWidths(31, prices([1, 1, 1, 1.4, 9]), 1.0).shares(scores, at).tolist() == [31]


def test_a_replay_of_one_text_at_a_time_remembers_and_one_alone_does_not() -> None:
    texts = random_texts(5, 4, coarse=False)
    cost = prices([1, 1.1, 1.3, 1.9, 3.0])
    policy = Eagle4(threshold=0.4).compose(MadeUpArtefacts(cost))
    choose, plain = rounds_of_policy(policy, texts), Plain(cost, 0.4, 63)
    served = serve(texts, 1, choose, with_filler_requests(len(texts.sequences)))
    scores = policy.order.layer(texts, 63, with_scores=True).scores
    assert scores is not None
    in_turn = [plain.size(scores[root]) for root in served.roots.tolist()]
    assert served.num_drafted.tolist() == in_turn
    alone = [round_.num_drafted for recorded in texts.sequences for round_ in rounds(policy, recorded)]
    assert all(size in SIZES for size in alone)
    for batch in (2, 5):
        with pytest.raises(PolicyError, match="one text"):
            policy.rule.check_batch(batch)  # type: ignore[union-attr]


def test_an_eagle3_pool_is_read_where_its_channel_is_named() -> None:
    with pytest.raises(ValueError, match="name its channel"):
        Eagle4(beam=4)
    made = Eagle4(channel="eagle3", beam=3, top_k=4, steps=2).compose(MadeUpArtefacts(prices([1, 1, 1, 1, 1])))
    assert not made.needs.draft


@pytest.mark.thorough
def test_widths_are_those_of_the_released_cost_model(tmp_path: Path) -> None:
    """500 sequences of 20 rounds; the wheel's own module runs in a process of its own."""
    wheel_files(tmp_path, (HARNESS,), ("eagle_harness/__init__.py", "eagle_harness/core/"))
    made: list[tuple[CostTable, Doubles]] = [random_rounds(seed) for seed in range(500)]
    ratios = np.array([cost.seconds["verify"][0, SIZES] / cost.seconds["verify"][0, 0] for cost, _ in made])
    np.savez(tmp_path / "in.npz", ratios=ratios, scores=np.array([scores for _, scores in made]))
    script = tmp_path / "run.py"
    script.write_text(RELEASED)
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path)
    theirs: Longs = np.load(tmp_path / "out.npy")
    contexts = np.array([64])
    for (cost, scores), widths in zip(made, theirs, strict=True):
        memory = VerifyWidths(63, cost, 2.4).memory()
        ours = [int(memory.shares(np.arange(1), row[None], contexts)[0]) + 1 for row in scores]
        assert ours == widths.tolist()
    assert sum(before != after for row in theirs for before, after in pairwise(row.tolist())) > 500


RELEASED = """
import numpy as np
from eagle_harness.core.cost_model import CostModel, CostModelParams
from eagle_harness.core.cost_table import BatchCostTable, CostCurve, IntervalCost
from eagle_harness.core.limits import ComputeIntensity

given, widths = np.load("in.npz"), []
for ratios, rounds in zip(given["ratios"], given["scores"]):
    curve = CostCurve(tuple(ratios * 1e4), tuple(ratios), (0, 7, 15, 31, 63), (), ())
    draft = CostCurve((1e3,), (1.0,), (0,), (), ())
    table = BatchCostTable(1, 0, 1024, 64, 1, 1, (IntervalCost(curve, draft),), (10.0,))
    model = CostModel({1: table}, CostModelParams(), ComputeIntensity.HIGH, 8, 8, 64)
    # As from the first decision on its draft's depth on, for one text.
    model.tier.tiny = True
    before, row = None, []
    for scores in rounds:
        present = np.cumsum(np.exp(scores[np.isfinite(scores)])).tolist()
        asked = present if before is None else before
        requested = model.verify_count(1, len(present))
        width, _ = model.verify_num_paged(asked, requested, 1, 64, lagged=before is not None)
        model.record_verify_num(1, width)
        row.append(width)
        before = present
    widths.append(row)
np.save("out.npy", np.array(widths))
"""
