"""Acceptance for the simulators of serving, AISimulate and Dynamo: a chain as the ``speculation`` of an engine."""

from simlab.analysis.export.engine_settings import DFLASH, EAGLE3, EngineSource, ExportedPolicy, Settings
from simlab.errors import SimlabError

AISIMULATE = EngineSource(
    "AISimulate",
    "https://github.com/ai-dynamo/aisimulate",
    {
        "aisimulate/config/engine.py": "0.13.0.dev",
        "aisimulate_core/sdk/speculation/base.py": "0.13.0.dev",
        "aisimulate_core/sdk/speculation/dflash.py": "0.13.0.dev",
        "aisimulate_core/sdk/speculation/eagle.py": "0.13.0.dev",
    },
    read_on="2026-11-27",
)

MOST_REPLAYED = 5
"""Drafted tokens of a round that its replay knows."""

_DRAFTED = {DFLASH: "num_draft_tokens", EAGLE3: "num_speculative_tokens"}
"""The parameter that says how many tokens a round drafts, by the kind of drafter."""


def replayed(exported: ExportedPolicy) -> int:
    """Drafted tokens of a round there; a longer chain is cut."""
    return min(exported.deepest, MOST_REPLAYED)


def aisimulate_settings(exported: ExportedPolicy) -> Settings:
    """The ``speculation`` of an engine's configuration.

    Raises:
        SimlabError: it is no chain, which is all that is replayed there.
    """
    if not exported.is_chain:
        raise SimlabError(
            f"AISimulate replays chains of 1 to {MOST_REPLAYED} tokens, and {exported.policy.label} is none; take "
            "chain:length=K"
        )
    num = replayed(exported)
    return {
        "kind": exported.method,
        "params": {_DRAFTED[exported.method]: num},
        "draft_model_path": exported.drafter,
        "expected_accepted_tokens": sum(exported.acceptance.pooled.marginal_rates(exported.deepest)[:num]),
        "seed": 0,
    }


def dynamo_flags(exported: ExportedPolicy) -> str:
    """Flags with the acceptance of each drafted token, given that all before it were accepted."""
    num = replayed(exported)
    rates = ",".join(map(repr, exported.acceptance.pooled.conditional_rates(exported.deepest)[:num]))
    return f"--ais-nextn {num} --ais-nextn-accept-rates {rates}"
