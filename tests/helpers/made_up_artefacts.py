"""Artefacts: made-up prices and tables, for recipes that need them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from counted_texts import counts_of
from made_up_costs import random_table

from simlab.arrays import Doubles
from simlab.cost import ChannelSeconds, CostTable
from simlab.policies.artefacts import LEAST_WIDTH, NoArtefacts
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.ngram import NGramCounts

TARGET_CONFIG: Mapping[str, object] = {
    "num_hidden_layers": 3,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 50,
    "vocab_size": 300,
}
"""Sizes of no model's layers."""


@dataclass(frozen=True)
class MadeUpArtefacts(NoArtefacts):
    """One price list, and values of tables by kind; what it does not hold is refused as `NoArtefacts` does."""

    prices: CostTable | None = None
    values: Mapping[str, Doubles] = field(default_factory=dict)
    width: int = LEAST_WIDTH

    def cost(self, name: str) -> tuple[CostTable, str]:
        return super().cost(name) if self.prices is None else (self.prices, self.prices.cost_id)

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        if kind not in self.values:
            return super().table(kind, name)
        return {"values": self.values[kind].tolist()}, f"made-up-{kind}"

    def target_config(self, name: str) -> Mapping[str, object]:
        return TARGET_CONFIG

    def min_width(self) -> int:
        return self.width


def channel_seconds(num_contexts: int) -> dict[str, ChannelSeconds]:
    """What the channels of the named policies take, about as long as a drafted token does."""
    rows: Doubles = np.outer(np.arange(1.0, num_contexts + 1.0), [0.01, 0.025]).astype(np.float64)
    heads, pools = ChannelSeconds(np.array([1, 32]), rows), ChannelSeconds(np.array([1]), rows[:, 1:])
    named = {"treeflash": heads, "taps": pools, "jetspec": pools, "eagle3": heads, "d2sd": heads}
    routers = dict.fromkeys(("router", "router-three", "router-chain"), pools)
    return {**named, "extension": pools, **routers}


class FullArtefacts(NoArtefacts):
    """Made-up prices, counts and tables of every kind."""

    def __init__(self) -> None:
        generator = np.random.default_rng(4)
        classes = np.stack(
            [generator.uniform(0.3, 2, (7, 2, NUM_CLASSES)), generator.normal(size=(7, 2, NUM_CLASSES))], -1
        )
        ranks = np.sort(generator.dirichlet(np.full(64, 0.3), size=7) * 0.9, axis=1)[:, ::-1]
        tables: Mapping[str, Doubles] = {"calibration": classes, "ranks": ranks}
        prices = random_table(generator, 512, longest=700)
        self._own = MadeUpArtefacts(replace(prices, channels=channel_seconds(len(prices.contexts))), tables)
        texts = [generator.integers(40, size=200, dtype=np.int32) for _ in range(5)]
        self._counts = counts_of(texts, 50_000)

    def cost(self, name: str) -> tuple[CostTable, str]:
        return self._own.cost(name)

    def ngram(self, name: str) -> tuple[NGramCounts, str]:
        return self._counts, "made-up"

    def table(self, kind: str, name: str) -> tuple[Mapping[str, object], str]:
        return self._own.table(kind, name)

    def target_config(self, name: str) -> Mapping[str, object]:
        return TARGET_CONFIG
