"""A choice of `simlab optimize` with a winner and prices."""

from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, PromptSource

BEST = ChosenPolicy("ddtree:budget=8", "0123")
OPTIMUM = Optimum(
    simlab_version="0.1.0",
    objective="tokens_per_s",
    node_cap=None,
    cost_ids=("a cost",),
    chosen_on=PromptSource("text", "draft", frozenset({("gsm8k", "1"), ("gsm8k", "2"), ("mbpp", "1")})),
    reported_on=PromptSource("other text", "other draft", frozenset({("gsm8k", "3")})),
    searched=300,
    winner=BEST,
    best=BEST,
    verdict="ddtree:budget=8 is faster than each of 2 others.",
    optimism={"best_on_evaluation": "ddtree:budget=9", "optimism": 0.25},
    run=("ddtree:budget=8", "caddtree", "chain"),
    rows=({"policy": "ddtree:budget=8", "evaluation_tokens_per_s": 30.5, "p_adjusted": None, "differs": True},),
)
