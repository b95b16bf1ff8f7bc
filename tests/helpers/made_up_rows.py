"""A result row of one text, of which only what is given matters."""

from simlab.analysis.table.summaries import STAGE_COLUMNS

NAMES = ("text_id", "draft_id", "simlab_version", "dataset", "prompt_id")
COUNTS = ("sequence", "turn", "sample", "rounds", "drafted", "verified", "accepted", "committed", "clipped")


def result_row(policy: str, **given: object) -> dict[str, object]:
    """A prediction without seconds: names are x, counts 0, but for what is given."""
    nothing = dict.fromkeys(NAMES, "x") | dict.fromkeys(COUNTS, 0) | dict.fromkeys(STAGE_COLUMNS)
    name = "ar" if policy == "autoregressive" else policy.partition(":")[0]
    own = {"policy": policy, "policy_id": policy, "name": name, "settings": "{}"}
    text = {"stop_reason": "length", "context_length": 9}
    return {**nothing, **own, **text, "kind": "predicted", "cost_id": None, **given}


def seconds(verify_s: float) -> dict[str, float]:
    """Seconds of a text whose rounds only verify."""
    return dict.fromkeys(STAGE_COLUMNS, 0.0) | {"verify_s": verify_s}
