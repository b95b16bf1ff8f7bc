"""Speculation settings of serving engines, made of a policy's acceptance and of the best chain at each batch size.

`simlab.analysis.export.engine_sources` says where the fields were read. None of these engines drafts the trees of most
policies here, so rates and lengths only make a server accept as many tokens as the policy would: they stand for its
acceptance, not for the width of its passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simlab.analysis.export.batch_choices import BatchChoice, batch_ranges
from simlab.analysis.table.acceptance import Acceptance
from simlab.errors import SimlabError
from simlab.policies.parsing.parse import NamedPolicy

CHAIN, BEAM = "chain", "eagle2-beam"
"""Names of the policies whose shape an engine can draft."""


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """All that is written of one policy.

    Attributes:
        policy: the policy.
        acceptance: what its rounds committed.
        depth: positions that the drafter drafts ahead.
        block_size: of the drafter, the root's position included.
        choices: the fastest chain at each batch size; empty where there are no prices of several batch sizes.
        about: where the numbers come from: trace, prompts, prices.
    """

    policy: NamedPolicy
    acceptance: Acceptance
    depth: int
    block_size: int
    choices: Sequence[BatchChoice] = ()
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def deepest(self) -> int:
        """No node of the policy lies deeper, since it drafts no more tokens and the drafter no deeper."""
        if self.policy.name == BEAM:
            return min(self.depth, self.policy.policy.budget, _whole(self.policy, "depth") + 1)
        return min(self.depth, self.policy.policy.budget)

    @property
    def is_chain(self) -> bool:
        """Whether it drafts a single path of a fixed length."""
        return self.policy.name == CHAIN


def vllm_settings(exported: ExportedPolicy, draft_tokens: int | None = None) -> dict[str, dict[str, object]]:
    """Parts of vLLM's ``--speculative-config``: ``load_test``, and ``dynamic`` where batch sizes have prices.

    Args:
        exported: what is exported.
        draft_tokens: ``num_speculative_tokens`` of the load test; positions that are never kept have the rate 0.
            None: as many as the policy's deepest node.

    Raises:
        SimlabError: there would be fewer than the policy keeps.
    """
    positions = exported.deepest if draft_tokens is None else draft_tokens
    if positions + 1 < exported.acceptance.pooled.longest:
        raise SimlabError(
            f"--draft-tokens {positions} is fewer than the {exported.acceptance.pooled.longest - 1} drafted tokens "
            f"that rounds of {exported.policy.label} keep; give at least as many"
        )
    parts: dict[str, dict[str, object]] = {
        "load_test": {
            "num_speculative_tokens": positions,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": list(exported.acceptance.pooled.marginal_rates(positions)),
        }
    }
    if exported.choices:
        ranges = batch_ranges(exported.choices)
        parts["dynamic"] = {
            "num_speculative_tokens": max(1, *(length for _, _, length in ranges)),
            "num_speculative_tokens_per_batch_size": [list(entry) for entry in ranges],
        }
    return parts


def sglang_adaptive(exported: ExportedPolicy) -> dict[str, dict[str, list[int]]]:
    """A file for SGLang's ``--speculative-adaptive-config``: for each range of batch sizes the one best step count.

    A key is the first batch size of its range. Empty where there are no prices of several batch sizes, or where the
    policy drafts no chain.
    """
    if not (exported.choices and exported.is_chain):
        return {}
    return {str(first): {"candidate_steps": [length]} for first, _, length in batch_ranges(exported.choices)}


def sglang_environment(exported: ExportedPolicy) -> dict[str, str]:
    """Environment variables with which SGLang accepts as many tokens as the policy would, on average.

    Real draft tokens are asked for where a chain is drafted; SGLang has them for nothing else.
    """
    found = {
        "SGLANG_SIMULATE_ACC_LEN": repr(exported.acceptance.pooled.acceptance_length),
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
    }
    return found | ({"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token"} if exported.is_chain else {})


def sglang_arguments(exported: ExportedPolicy) -> dict[str, int]:
    """SGLang's static settings of the policy's shape; empty where it has none. SGLang's draft tokens count the root."""
    if exported.is_chain:
        return _sglang_shape(exported.deepest, 1, exported.deepest)
    if exported.policy.name == BEAM:
        return _sglang_shape(exported.deepest, _whole(exported.policy, "beam"), _whole(exported.policy, "budget"))
    return {}


def _sglang_shape(steps: int, top_k: int, budget: int) -> dict[str, int]:
    return {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": top_k,
        "speculative_num_draft_tokens": budget + 1,
    }


def tensorrt_llm_settings(exported: ExportedPolicy) -> dict[str, object]:
    """Fields of TensorRT-LLM's ``speculative_config``.

    Of EAGLE-2's beam the dynamic tree; of a chain its length and, where batch sizes have prices, the draft lengths of
    each; of any other policy a chain as long as its deepest node, for a load test.

    Raises:
        SimlabError: TensorRT-LLM refuses such a tree or schedule.
    """
    if exported.policy.name == BEAM:
        return _dynamic_tree(exported)
    if not (exported.choices and exported.is_chain):
        return {"max_draft_len": exported.deepest}
    schedule = {last: length for _, last, length in batch_ranges(exported.choices)}
    first = next(iter(schedule.values()))
    if first == 0 or first < max(schedule.values()):
        raise SimlabError(
            "TensorRT-LLM wants the longest draft at the smallest batch sizes, and above 0; the fastest chains here "
            f"have {_listed(exported.choices)} tokens. Leave out batch sizes, or write a schedule by hand"
        )
    return {"max_draft_len": first, "draft_len_schedule": schedule}


def _dynamic_tree(exported: ExportedPolicy) -> dict[str, object]:
    beam, budget = _whole(exported.policy, "beam"), _whole(exported.policy, "budget")
    if not exported.deepest <= budget <= beam * exported.deepest:
        raise SimlabError(
            f"TensorRT-LLM takes at most dynamic_tree_max_topK * max_draft_len = {beam * exported.deepest} tokens for "
            f"a dynamic tree of {exported.deepest} layers, and {exported.policy.label} drafts up to {budget}; choose a "
            "smaller budget, or a wider or deeper beam"
        )
    return {
        "decoding_type": "Eagle3",
        "max_draft_len": exported.deepest,
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": beam,
        "max_total_draft_tokens": budget,
    }


def tensorrt_llm_forced(one: ExportedPolicy) -> float:
    """TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS: drafted tokens accepted per round, without the bonus token."""
    pooled = one.acceptance.pooled
    return (pooled.committed - pooled.rounds) / pooled.rounds


def _listed(choices: Sequence[BatchChoice]) -> str:
    ordered = sorted(choices, key=lambda choice: choice.prices.batch)
    return ", ".join(f"{choice.length} (batch {choice.prices.batch})" for choice in ordered)


def _whole(policy: NamedPolicy, name: str) -> int:
    value = policy.settings[name]
    assert isinstance(value, int)
    return value
