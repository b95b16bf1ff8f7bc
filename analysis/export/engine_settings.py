"""Speculation settings of serving engines, made of a policy's acceptance and of the best chain at each batch size.

`simlab.analysis.export.engine_sources` says where the fields were read. Traces are of DFlash drafters, with which these
engines draft chains only. Of any other policy they can accept as many tokens in a load test: that stands for its
acceptance, not for the width of its passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simlab.analysis.export.batch_choices import BatchChoice, batch_ranges
from simlab.analysis.table.acceptance import Acceptance
from simlab.errors import SimlabError
from simlab.policies.parsing.parse import NamedPolicy

CHAIN, BEAM = "chain", "eagle2-beam"
METHOD = "dflash"
"""What engines call the drafters that simlab reads."""

Settings = dict[str, object]


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """All that is written of one policy.

    Attributes:
        policy: the policy.
        acceptance: what its rounds committed.
        target: name of the model; likewise ``drafter``.
        depth: positions that the drafter drafts ahead.
        block_size: of the drafter, the root's position included.
        choices: the fastest chain at each batch size; empty where there are no prices of several batch sizes.
        own_blocks: lengths of chains that were replayed on traces of their own blocks; none: all on one trace.
        about: where the numbers come from: trace, prompts, prices.
    """

    policy: NamedPolicy
    acceptance: Acceptance
    target: str
    drafter: str
    depth: int
    block_size: int
    choices: Sequence[BatchChoice] = ()
    own_blocks: Sequence[int] = ()
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def deepest(self) -> int:
        """No node of the policy lies deeper, since it drafts no more tokens and the drafter no deeper."""
        if self.policy.name == BEAM:
            layers = self.policy.settings["depth"]
            assert isinstance(layers, int)
            return min(self.depth, self.policy.policy.budget, layers + 1)
        return min(self.depth, self.policy.policy.budget)

    @property
    def is_chain(self) -> bool:
        """Whether it drafts a single path of a fixed length."""
        return self.policy.name == CHAIN

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens that a chain drafts, at any batch size, ascending; 0, plain decoding, is left out."""
        found = {choice.length for choice in self.choices} if self.choices else {self.deepest}
        return tuple(sorted(found - {0}))


def vllm_settings(exported: ExportedPolicy, draft_tokens: int | None = None) -> dict[str, Settings]:
    """Values of vLLM's ``--speculative-config``: ``load_test``, and of a chain ``serve``.

    Args:
        exported: what is exported.
        draft_tokens: ``num_speculative_tokens`` of the load test; positions that are never kept have the rate 0.
            None: as many as the policy's deepest node.
    """
    positions = exported.deepest if draft_tokens is None else draft_tokens
    if positions + 1 < exported.acceptance.pooled.longest:
        raise SimlabError(
            f"--draft-tokens {positions} is fewer than the {exported.acceptance.pooled.longest - 1} drafted tokens "
            f"that rounds of {exported.policy.label} keep; give at least as many"
        )
    drafter: Settings = {"method": METHOD, "model": exported.drafter}
    load_test = drafter | {
        "num_speculative_tokens": positions,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": list(exported.acceptance.pooled.marginal_rates(positions)),
    }
    if not exported.is_chain:
        return {"load_test": load_test}
    if not exported.choices:
        return {"load_test": load_test, "serve": drafter | {"num_speculative_tokens": exported.deepest}}
    table = [list(entry) for entry in batch_ranges(exported.choices)]
    longest = max(1, *exported.lengths, 0)
    serve = drafter | {"num_speculative_tokens": longest, "num_speculative_tokens_per_batch_size": table}
    return {"load_test": load_test, "serve": serve}


def sglang_settings(exported: ExportedPolicy) -> Settings:
    """Flags of SGLang's server, without their dashes, for a chain as deep as the policy.

    SGLang's draft tokens count the root.
    """
    return {
        "model-path": exported.target,
        "speculative-algorithm": "DFLASH",
        "speculative-draft-model-path": exported.drafter,
        "speculative-num-draft-tokens": exported.deepest + 1,
    }


def sglang_environment(exported: ExportedPolicy) -> dict[str, str]:
    """Environment variables with which SGLang accepts as many tokens as the policy would, on average."""
    return {
        "SGLANG_SIMULATE_ACC_LEN": repr(exported.acceptance.pooled.acceptance_length),
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }


def tensorrt_llm_settings(exported: ExportedPolicy) -> Settings:
    """Fields of TensorRT-LLM's ``speculative_config``, for a chain as deep as the policy.

    Where batch sizes have prices it is the longest of theirs, with the draft length of each.
    """
    drafter: Settings = {"decoding_type": "DFlash", "speculative_model": exported.drafter}
    if not (exported.choices and exported.is_chain):
        return drafter | {"max_draft_len": exported.deepest}
    schedule = {last: length for _, last, length in batch_ranges(exported.choices)}
    first = next(iter(schedule.values()))
    if first == 0 or first < max(schedule.values()):
        raise SimlabError(
            "TensorRT-LLM wants the longest draft at the smallest batch sizes, and above 0; the fastest chains here "
            f"have {_listed(exported.choices)} tokens. Leave out batch sizes, or write a schedule by hand"
        )
    return drafter | {"max_draft_len": first, "draft_len_schedule": schedule}


def tensorrt_llm_environment(exported: ExportedPolicy) -> dict[str, str]:
    """The variable with which TensorRT-LLM accepts as many drafted tokens per round; the bonus token is not counted."""
    pooled = exported.acceptance.pooled
    drafted = (pooled.committed - pooled.rounds) / pooled.rounds
    return {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": repr(drafted)}


def _listed(choices: Sequence[BatchChoice]) -> str:
    ordered = sorted(choices, key=lambda choice: choice.prices.batch)
    return ", ".join(f"{choice.length} (batch {choice.prices.batch})" for choice in ordered)
