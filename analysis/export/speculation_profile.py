"""``speculation_profile.json`` of NVIDIA's Model-Optimizer, of a replay. EXPERIMENTAL: its schema is in review.

The schema is that of `simlab.analysis.export.engine_settings.MODELOPT`. ``measured`` is false, since no server ran. Its
rates are by drafted position, its histogram by tokens committed, bonus token included; its mean over steps is the
pooled acceptance length here, and its mean per request the mean of the responses' means.
"""

from collections.abc import Mapping

from simlab.analysis.export.engine_settings import MODELOPT, READ_ON, ExportedPolicy
from simlab.ids import VERSION

SCHEMA_VERSION = "1.0"
TOLERANCE = 0.02
"""By how much mean and rates may disagree, in the schema; here they agree to a rounding error."""

_TREE = "the vectors describe the accepted path of a tree, in passes wider than a chain of num_speculative_tokens"


def speculation_profile(
    exported: ExportedPolicy,
    target: Mapping[str, str],
    drafter: Mapping[str, str],
) -> dict[str, object]:
    """The profile of one policy.

    ``accept_length_model`` is ``measured_per_k``, the schema's word for a drafter that fills a block, whose acceptance
    may not be extrapolated over K; so ``accept_length_by_k`` has the one K that was replayed.

    Args:
        exported: what is exported.
        target: name, revision and digest of the target.
        drafter: the same.
    """
    pooled, positions = exported.acceptance.pooled, exported.deepest
    marginal = pooled.marginal_rates(positions)
    implied = 1.0 + sum(marginal)
    conditions = {
        **exported.about,
        "policy": exported.policy.label,
        "producer": f"simlab {VERSION}, predicted by replay of a recorded trace",
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "experimental": True,
        "schema_commit": next(iter(MODELOPT.files.values())),
        "schema_read_on": READ_ON,
        "producer": f"simlab {VERSION}",
        "measured": False,
        "method": exported.method,
        "draft_checkpoint": dict(drafter),
        "target_model": dict(target),
        "num_speculative_tokens": positions,
        "block_size": exported.block_size,
        "max_supported_k": exported.depth,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": list(pooled.conditional_rates(positions)),
        "marginal_accept_rates": list(marginal),
        "mean_accept_length": pooled.acceptance_length,
        "mean_accept_length_per_request": exported.acceptance.acceptance_length_macro,
        "accept_length_model": "measured_per_k",
        "accept_length_by_k": {str(positions): pooled.acceptance_length},
        "acceptance_length_histogram": {str(length): n for length, n in enumerate(pooled.counts) if n},
        "per_category": {
            name: {"mean_accept_length": counts.acceptance_length, "num_steps": counts.rounds}
            for name, counts in sorted(exported.acceptance.by_dataset.items())
        },
        "measurement_conditions": conditions if exported.is_chain else {**conditions, "note": _TREE},
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": implied,
                "reported_mean_accept_length": pooled.acceptance_length,
                "abs_delta": abs(implied - pooled.acceptance_length),
                "tolerance": TOLERANCE,
                "passed": abs(implied - pooled.acceptance_length) <= TOLERANCE,
            },
            # Rates are shares of the same rounds, so none is above the one before.
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }
