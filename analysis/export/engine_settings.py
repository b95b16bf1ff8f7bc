"""Speculation settings of serving engines, made of a policy's acceptance and of the best chain at each batch size.

Where the fields were read is said below. With a DFlash drafter vLLM, SGLang and TensorRT-LLM draft chains only, and
TensorRT-Edge-LLM chains and the trees of the policy `edge-llm`; with an EAGLE-3 head vLLM drafts chains, the others
chains and the head's dynamic trees. Of any other policy the first three can accept as many tokens in
a load test: that stands for its acceptance, not for the width of its passes.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simlab.analysis.export.batch_choices import BatchChoice, batch_ranges
from simlab.analysis.table.summaries import Acceptance
from simlab.errors import SimlabError
from simlab.policies.parsing.parse import NamedPolicy
from simlab.traces.format.manifest_entries import DraftSet

# Where the fields of each engine's settings were read, and when: engines change them without notice.


READ_ON = "2026-11-22"
"""The day on which they were read, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class EngineSource:
    """What was read of one engine.

    Attributes:
        name: of the engine.
        repository: where its source is.
        files: path and commit of each file that was read.
        also: documentation and discussions.
        read_on: the day.
    """

    name: str
    repository: str
    files: Mapping[str, str]
    also: tuple[str, ...] = ()
    read_on: str = READ_ON


VLLM = EngineSource(
    "vLLM",
    "https://github.com/vllm-project/vllm",
    {
        "vllm/config/speculative.py": "002e77c1f0ef9b19cff8b9e21cfbd6feb3d6b443",
        "vllm/v1/spec_decode/dynamic/utils.py": "14b450ca590cbff96e7004bdb147a5d3acf5a4f6",
        "docs/features/speculative_decoding/dynamic_speculative_decoding.md": (
            "015a47e1282c9ef40d706ee3463cb699e04e93c0"
        ),
        "vllm/v1/spec_decode/dflash.py": "01046b9a33846d0561525a552c3c540ef9f56db0",
    },
    ("pull requests 32374 and 40662",),
)
SGLANG = EngineSource(
    "SGLang",
    "https://github.com/sgl-project/sglang",
    {
        "python/sglang/srt/arg_groups/fields/spec.py": "7e997c672532a8677cb03a2f5cf588419c4b4d25",
        "python/sglang/srt/arg_groups/speculative_hook.py": "004c82e07d876f6e4a0ad6e15325706b0f478f1a",
        "python/sglang/srt/server_args.py": "001067fffe33427bee0ed2f007fb7551a1d76b44",
        "python/sglang/srt/server_args_config_parser.py": "03bd2f167a3bc5a040d9cbb8343ac77adb3db53f",
        "python/sglang/srt/speculative/adaptive_spec_params.py": "015c872628e328b530880bcf95ae91222604b225",
        "python/sglang/srt/speculative/spec_utils.py": "00731f0bc9fa81c39802754fb4b62e9cce967582",
    },
    ("pull request 32595",),
)
TENSORRT_LLM = EngineSource(
    "TensorRT-LLM",
    "https://github.com/NVIDIA/TensorRT-LLM",
    {
        "tensorrt_llm/llmapi/llm_args.py": "0004396720054fd8e205cbf616f21f0b57c6b412",
        "tensorrt_llm/_torch/speculative/dflash.py": "00679c66c3e38f6d2651ad0a5bef0f94d862e36c",
        "tensorrt_llm/_torch/speculative/interface.py": "00b6d5a25c30b4382d24fbdf52956d601b3ffd24",
        "tensorrt_llm/commands/serve.py": "00209af149e7774406881a37283dce303571eb11",
        "docs/source/features/speculative-decoding.md": "04c8822cc42ffd1f5b6270874e5b9a64a20e7a58",
    },
    (
        "DFlashDecodingConfig in the documentation of 1.4.0rc1",
        "DSparkDecodingConfig in the documentation of 1.3.0rc27, read on 2026-11-28",
        "pull request 10860",
        "Eagle3DecodingConfig in docs/source/features/speculative-decoding.md as of August 2026, read on 2026-11-27",
    ),
)
MODELOPT = EngineSource(
    "Model-Optimizer",
    "https://github.com/NVIDIA/Model-Optimizer",
    {
        "examples/specdec_bench/specdec_bench/speculation_profile.py": "edf879d3daf7879acdeb2dab9f54a591837da7b0",
    },
    ("pull requests 2247, 2313, 2315 and 2316, open on that day",),
)


CHAIN, BEAM, HEAD_TREE = "chain", "eagle2-beam", "eagle3"
DFLASH, DSPARK, EAGLE3, UNO = "dflash", "dspark", "eagle3", "uno"
"""What engines call the drafters that simlab reads."""

DRAFTERS = {
    DFLASH: "a DFlash drafter",
    DSPARK: "a drafter of DSpark",
    EAGLE3: "an EAGLE-3 head",
    UNO: "an adapter of UNO's",
}

WRITTEN: Mapping[str, tuple[str, ...]] = {
    "vllm": (DFLASH, DSPARK, EAGLE3),
    "sglang": (DFLASH, DSPARK, EAGLE3, UNO),
    "tensorrt-llm": (DFLASH, DSPARK, EAGLE3),
    "tensorrt-edge-llm": (DFLASH, EAGLE3),
    "modelopt": (DFLASH,),
    "aisimulate": (DFLASH, EAGLE3),
}
"""For which drafters the settings of each engine are written."""


def method_of(draft_set: DraftSet) -> str:
    """What engines call the drafter of a draft set; empty: none drafts with it, or nobody says what it is."""
    if not draft_set.root_seen:
        return UNO if draft_set.noise else ""
    if draft_set.is_chain:
        return "" if draft_set.candidates_only else EAGLE3 if draft_set.is_head else DSPARK
    return DFLASH


Settings = dict[str, object]


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What an EAGLE-3 head drafts, as engines count it.

    Attributes:
        steps: passes of the head, S.
        topk: children of a node and nodes of a pass, K; 1: a chain.
        drafted: drafted tokens of a round, N. SGLang's and TensorRT-Edge-LLM's own numbers count the root too,
            TensorRT-LLM's does not.
    """

    steps: int
    topk: int
    drafted: int


def head_shape(policy: NamedPolicy, depth: int) -> HeadShape:
    """Steps, width and size of a policy on an EAGLE-3 head.

    Engines grow S passes: the root's K best, then S - 1 times K children of the K best nodes; of all of these the N
    best by the product of their probabilities are verified. So ``eagle3:budget=N,beam=K,top_k=K,steps=S-1``.

    Args:
        policy: a chain, or ``eagle3``.
        depth: tokens that the head's chain was recorded for.

    Raises:
        SimlabError: no engine drafts it.
    """
    settings = {name: value for name, value in policy.settings.items() if isinstance(value, int)}
    if policy.name == CHAIN:
        length = min(settings.get("length", depth), depth)
        return HeadShape(length, 1, length)
    if policy.name != HEAD_TREE:
        raise SimlabError(
            f"no engine drafts {policy.label} with an EAGLE-3 head; take chain:length=K, or a tree of the head, "
            "eagle3:budget=N,beam=K,top_k=K,steps=S"
        )
    steps, beam, top_k = settings["steps"] + 1, settings["beam"], settings["top_k"]
    if beam != top_k:
        raise SimlabError(
            f"engines have one number for beam and top_k, SGLang's is --speculative-eagle-topk, and {policy.label} has "
            f"beam {beam} and top_k {top_k}; take equal ones"
        )
    if top_k == 1 and policy.policy.budget != steps:
        raise SimlabError(
            f"with one child a node engines draft a chain as long as its {steps} steps, and {policy.label} drafts "
            f"{policy.policy.budget} tokens; take budget={steps}"
        )
    return HeadShape(steps, top_k, policy.policy.budget)


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """All that is written of one policy.

    Attributes:
        policy: the policy.
        acceptance: what its rounds committed.
        target: name of the model; the same for ``drafter``.
        depth: positions that the drafter drafts ahead.
        block_size: of the drafter, the root's position included.
        choices: the fastest chain at each batch size; empty where there are no prices of several batch sizes.
        own_blocks: lengths of chains that were replayed on traces of their own blocks; none: all on one trace.
        about: where the numbers come from: trace, prompts, prices.
        method: what engines call the drafter.
    """

    policy: NamedPolicy
    acceptance: Acceptance
    target: str
    drafter: str
    depth: int
    block_size: int
    choices: Sequence[BatchChoice] = ()
    own_blocks: Sequence[int] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    method: str = DFLASH

    @property
    def deepest(self) -> int:
        """No node of the policy lies deeper, since it drafts no more tokens and the drafter no deeper."""
        if self.policy.name == HEAD_TREE:
            return min(self.policy.policy.budget, self.head_shape.steps)
        if self.policy.name == BEAM:
            layers = self.policy.settings["depth"]
            assert isinstance(layers, int)
            return min(self.depth, self.policy.policy.budget, layers + 1)
        return min(self.depth, self.policy.policy.budget)

    @property
    def head_shape(self) -> HeadShape:
        """Steps, width and size, of an EAGLE-3 head."""
        return head_shape(self.policy, self.depth)

    @property
    def is_served(self) -> bool:
        """Whether some engine drafts it as it is: a chain, a tree of an EAGLE-3 head, or with an adapter of UNO's."""
        return self.is_chain or self.method in (EAGLE3, UNO)

    @property
    def is_chain(self) -> bool:
        """Whether it drafts a single path of a fixed length."""
        return self.policy.name == CHAIN


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
    drafter: Settings = {"method": exported.method, "model": exported.drafter}
    load_test = drafter | {
        "num_speculative_tokens": positions,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": list(exported.acceptance.pooled.marginal_rates(positions)),
    }
    if not exported.is_chain:
        return {"load_test": load_test}
    if not exported.choices:
        return {"load_test": load_test, "serve": drafter | {"num_speculative_tokens": exported.deepest}}
    lengths = {choice.prices.batch: choice.length for choice in exported.choices}
    return {"load_test": load_test, "serve": vllm_table(exported.method, exported.drafter, lengths)}


def vllm_table(method: str, drafter: str, lengths: Mapping[int, int]) -> Settings:
    """A value of vLLM's ``--speculative-config`` that drafts another length at another batch size.

    Args:
        method: what vLLM calls the drafter.
        drafter: name of the model.
        lengths: drafted tokens by batch size; 0: autoregressive decoding.
    """
    table = [list(entry) for entry in batch_ranges(lengths)]
    longest: Settings = {"num_speculative_tokens": max(1, *lengths.values())}
    return {"method": method, "model": drafter, **longest, "num_speculative_tokens_per_batch_size": table}


def sglang_settings(exported: ExportedPolicy) -> Settings:
    """Flags of SGLang's server, without their dashes: a chain as deep as the policy, or a tree of an EAGLE-3 head."""
    is_block = exported.method in (DFLASH, DSPARK)
    shape = HeadShape(exported.deepest, 1, exported.deepest) if is_block else exported.head_shape
    return {"model-path": exported.target, **sglang_drafter(exported.method, exported.drafter, shape)}


def sglang_drafter(method: str, drafter: str, shape: HeadShape) -> Settings:
    """Those flags of SGLang's server that say what is drafted; its draft tokens count the root."""
    steps: Settings = {"speculative-num-steps": shape.steps, "speculative-eagle-topk": shape.topk}
    return {
        "speculative-algorithm": method.upper(),
        "speculative-draft-model-path": drafter,
        **(steps if method == EAGLE3 else {}),
        **({"speculative-dspark-block-size": shape.drafted} if method == DSPARK else {}),
        "speculative-num-draft-tokens": shape.drafted + 1,
    }


def sglang_environment(exported: ExportedPolicy) -> dict[str, str]:
    """Environment variables with which SGLang accepts as many tokens as the policy would, on average."""
    return {
        "SGLANG_SIMULATE_ACC_LEN": repr(exported.acceptance.pooled.acceptance_length),
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }


def tensorrt_llm_settings(exported: ExportedPolicy) -> Settings:
    """Fields of TensorRT-LLM's ``speculative_config``, for a chain as deep as the policy, or a tree of an EAGLE-3 head.

    Where batch sizes have prices it is the longest of theirs, with the draft length of each.
    """
    if exported.method == EAGLE3:
        return _tensorrt_llm_head(exported)
    kind = {DFLASH: "DFlash", DSPARK: "DSpark"}[exported.method]
    drafter: Settings = {"decoding_type": kind, "speculative_model": exported.drafter}
    if not (exported.choices and exported.is_chain):
        return drafter | {"max_draft_len": exported.deepest}
    lengths = {choice.prices.batch: choice.length for choice in exported.choices}
    schedule = {last: length for _, last, length in batch_ranges(lengths)}
    first = next(iter(schedule.values()))
    if first == 0 or first < max(schedule.values()):
        raise SimlabError(
            "TensorRT-LLM wants the longest draft at the smallest batch sizes, and above 0; the fastest chains here "
            f"have {_listed(exported.choices)} tokens. Leave out batch sizes, or write a schedule by hand"
        )
    return drafter | {"max_draft_len": first, "draft_len_schedule": schedule}


def _tensorrt_llm_head(exported: ExportedPolicy) -> Settings:
    shape = exported.head_shape
    head: Settings = {"decoding_type": "Eagle3", "speculative_model": exported.drafter, "max_draft_len": shape.steps}
    if shape.topk == 1:
        return head
    if not shape.steps <= shape.drafted <= shape.topk * shape.steps:
        raise SimlabError(
            f"TensorRT-LLM verifies from max_draft_len to dynamic_tree_max_topK x max_draft_len tokens, here "
            f"{shape.steps} to {shape.topk * shape.steps}, and {exported.policy.label} drafts {shape.drafted}; take "
            "such a budget"
        )
    tree: Settings = {"use_dynamic_tree": True, "dynamic_tree_max_topK": shape.topk}
    return head | tree | {"max_total_draft_tokens": shape.drafted}


def tensorrt_llm_environment(exported: ExportedPolicy) -> dict[str, str]:
    """The variable with which TensorRT-LLM accepts as many drafted tokens per round; the bonus token is not counted."""
    pooled = exported.acceptance.pooled
    drafted = (pooled.committed - pooled.rounds) / pooled.rounds
    return {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": repr(drafted)}


def _listed(choices: Sequence[BatchChoice]) -> str:
    ordered = sorted(choices, key=lambda choice: choice.prices.batch)
    return ", ".join(f"{choice.length} (batch {choice.prices.batch})" for choice in ordered)


def short_name(name: str) -> str:
    """A model's name without the folders of this machine, since the file may be published."""
    return "/".join(name.split("/")[-2:])


def vllm_lines(method: str, drafter: str, lengths: Mapping[int, int]) -> list[str]:
    """What vLLM is told to draft, and below it the line to paste, if there is one.

    Args:
        method: what it calls the drafter.
        drafter: name of the model.
        lengths: drafted tokens of the chain by batch size; 0: autoregressive decoding.
    """
    if not any(lengths.values()):
        return ["vLLM: no chain is significantly faster here; start it without --speculative-config."]
    if len(set(lengths.values())) == 1:
        (length,) = set(lengths.values())
        setting, config = str(length), {"method": method, "model": drafter, "num_speculative_tokens": length}
    else:
        ranges = [
            f"{n} at batch {low if low == high else f'{low} to {high}'}" for low, high, n in batch_ranges(lengths)
        ]
        setting, config = ", ".join(ranges), vllm_table(method, drafter, lengths)
    return [f"vLLM: num_speculative_tokens {setting}.", f"--speculative-config {shlex.quote(_json(config))}"]


def sglang_lines(method: str, drafter: str, shape: HeadShape, only_of: int | None) -> list[str]:
    """What SGLang is told to draft, and below it the line to paste.

    Args:
        method: what it calls the drafter.
        drafter: name of the model.
        shape: of a chain or tree.
        only_of: the batch size that it is best at, where there are others; None: it is of all.
    """
    alone = "" if only_of is None else f" One setting serves all batch sizes; this is that of batch {only_of}."
    setting = f"steps {shape.steps}, topk {shape.topk}, " if method == EAGLE3 else ""
    flags = shlex.join(flag_words(sglang_drafter(method, drafter, shape)))
    return [f"SGLang: {setting}draft tokens {shape.drafted + 1}, the root counted.{alone}", flags]


# Lines that start a serving engine with exported settings, to be pasted into a shell; or why there is none.


SGLANG_SERVER = ("python", "-m", "sglang.launch_server")


def vllm_command(target: str, config: Settings) -> str:
    """Start vLLM with a value of ``--speculative-config``."""
    return shlex.join(["vllm", "serve", target, "--speculative-config", _json(config)])


def _json(config: Settings) -> str:
    return json.dumps(config, ensure_ascii=False, allow_nan=False)


def flag_words(settings: Settings) -> list[str]:
    """Settings as the words of a command."""
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def start_lines(words: Sequence[str], load_test: Mapping[str, str], is_served: bool) -> dict[str, str]:
    """Lines that start an engine: under environment variables for a load test, and as it serves, if it does."""
    line = shlex.join(words)
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in load_test.items())
    return {"load_test": f"{variables} {line}"} | ({"serve": line} if is_served else {})


def cannot_run(engine: str, exported: ExportedPolicy) -> str:
    """Why an engine has no line that serves a policy."""
    block = "with a block drafter it drafts chains only, of one length for all texts of a batch"
    why = "it drafts chains only" if exported.method == EAGLE3 else block
    return f"{engine} cannot run {exported.policy.label}: {why}, so these settings are for load tests."


def block_note(engine: str, exported: ExportedPolicy) -> str:
    """What a chain shorter than the recorded block is not: engines draft a block of its length and the root.

    The drafter fills all positions of a block at once, so those of a shorter one are other drafts.
    """
    if exported.method in (EAGLE3, UNO):
        return ""  # no token of theirs knows those behind it: a shorter chain is the beginning of a longer one
    root = exported.block_size - exported.depth
    if exported.own_blocks:
        tried = {*exported.own_blocks, exported.depth}
        missing = [str(length + root) for length in range(1, exported.depth) if length not in tried]
        if not (exported.choices and missing):
            return ""
        return (
            f"Chains of {', '.join(map(str, sorted(tried)))} were tried, each on a trace of its own block; there is no "
            f"trace of block {', '.join(missing)}, which `simlab record --text-from TRACE --block N` records."
        )
    lengths = {choice.length for choice in exported.choices} if exported.choices else {exported.deepest}
    shorter = sorted(length for length in lengths if 0 < length < exported.depth)
    if not (exported.is_chain and shorter):
        return ""
    return (
        f"A chain of {', '.join(map(str, shorter))} was replayed as the first tokens of a block of "
        f"{exported.block_size}, but {engine} drafts a block of k + 1 for k tokens, whose drafts differ: its "
        "acceptance will not be the one here. Record traces of block "
        f"{', '.join(str(length + root) for length in shorter)} with `simlab record --text-from TRACE --block N`, and "
        "give them with --block-trace."
    )
