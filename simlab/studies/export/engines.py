"""``simlab export --format vllm``, ``sglang``, ``tensorrt-llm`` and ``modelopt``: settings for serving engines."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import numpy as np

from simlab.analysis.export.engine_settings import (
    BEAM,
    CHAIN,
    ExportedPolicy,
    sglang_adaptive,
    sglang_arguments,
    sglang_environment,
    tensorrt_llm_forced,
    tensorrt_llm_settings,
    vllm_settings,
)
from simlab.analysis.export.engine_sources import SGLANG, TENSORRT_LLM, VLLM
from simlab.analysis.export.speculation_profile import speculation_profile
from simlab.analysis.table.acceptance import Acceptance, acceptance_of
from simlab.errors import UsageError
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import is_plain_decoding
from simlab.sequence_replay import check_needs
from simlab.studies.export.batches import (
    HOW,
    ExportedTexts,
    batch_table,
    chains,
    has_table,
    priced_batches,
)
from simlab.studies.export.notes import about, notes_of, short_name, stamp, width_note
from simlab.studies.inputs.artefacts import TraceArtefacts, in_sample_note
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.totals import COMMITTED, COUNTS, ROUNDS

ENGINES = ("vllm", "sglang", "tensorrt-llm", "modelopt")

Made = tuple[str, list[str]]
"""The file, and what to know beside it."""

_NO_TREES = (
    "The latency profiles of several batch sizes are left aside: a table over them is of chains; name -p chain for it."
)


def engine_text(
    engine: str,
    policy_typed: str,
    texts: ExportedTexts,
    costs: Sequence[Path],
    batches: Sequence[int] | None,
    draft_tokens: int | None,
    limit: int | None,
) -> tuple[str, str, list[str]]:
    """The file, a sentence that says what is in it, and what else to know.

    Raises:
        SimlabError: the trace, the prices or the engine do not hold what is asked for.
    """
    if engine == "modelopt" and len(costs) > 1:
        raise UsageError(f"modelopt's profile is of one latency profile; got {len(costs)} times --cost")
    priced = priced_batches(costs, batches, texts, limit)
    artefacts = TraceArtefacts(priced[0].prices, texts.trace, texts.draft)
    policy = _policy(policy_typed, artefacts, texts)
    kept = texts.trace.manifest.draft_sets[texts.draft]
    asked = has_table(priced, batches)
    choosing = asked and (engine == "vllm" or policy.name == CHAIN)
    one = ExportedPolicy(
        policy,
        _acceptance(policy, texts),
        kept.depth,
        kept.block_size,
        batch_table(priced, texts) if choosing else (),
        about(texts),
    )
    notes = [
        *notes_of(one),
        *([_NO_TREES] if asked and not choosing else []),
        *([in_sample_note([policy.label])] if artefacts.in_sample([policy]) else []),
    ]
    make: Callable[[ExportedPolicy, list[str], ExportedTexts, int | None], Made] = _MAKERS[engine]
    text, notes = make(one, notes, texts, draft_tokens)
    return text, f"Settings of {policy.label} for {engine}", notes


def _policy(typed: str, artefacts: TraceArtefacts, texts: ExportedTexts) -> NamedPolicy:

    found = parse_policies([typed], artefacts)
    if len(found) != 1:
        raise UsageError(f"`{typed}` names {len(found)} policies; settings are of one, so name one")
    if is_plain_decoding(found[0].policy):
        raise UsageError("autoregressive decoding drafts nothing, so it has no acceptance; name a policy such as chain")
    kept = texts.trace.manifest.draft_sets[texts.draft]
    check_needs(found[0].policy, kept.exact_budget, kept.min_width)
    return found[0]


def _acceptance(policy: NamedPolicy, texts: ExportedTexts) -> Acceptance:
    """What the policy's rounds committed, counted."""
    replay, found = Replay([(policy.policy, None)]), []
    with progress_bar(texts.progress, "export", "sequence", len(texts.wanted)) as bar:
        for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
            columns = replay.rounds(some)[0].columns(some)
            found += [(text.prompt, rounds) for text, rounds in zip(some.sequences, columns, strict=True)]
            bar.update(len(some.sequences))
    return acceptance_of(found)


def _vllm(one: ExportedPolicy, notes: list[str], texts: ExportedTexts, draft_tokens: int | None) -> Made:

    parts = vllm_settings(one, draft_tokens)
    notes = [*notes, *width_note(one)]
    if "dynamic" not in parts:
        notes = [*notes, f"No batch-to-K table: there is a latency profile of one batch size only. {HOW}."]
    return _json({"simlab": stamp(one, VLLM, notes), **parts}), notes


def _sglang(one: ExportedPolicy, notes: list[str], texts: ExportedTexts, draft_tokens: int | None) -> Made:

    slots = sglang_adaptive(one)
    if slots:
        said = (
            "SGLang reads these steps with --speculative-algorithm EAGLE or EAGLE3 and --speculative-eagle-topk 1 "
            "only, where each step is a pass of the drafter; see that the latency profile is of such a drafter."
        )
    elif one.is_chain:
        said = f"No adaptive steps: there is a latency profile of one batch size only. {HOW}."
    else:
        said = (
            "No adaptive steps: SGLang's adaptive speculation is for chains (EAGLE or EAGLE3 with top-k 1), and "
            f"{one.policy.label} is none; name -p chain for them."
        )
    arguments = sglang_arguments(one)
    notes = [*notes, *([] if arguments else width_note(one)), said]
    simlab = stamp(one, SGLANG, notes)
    simlab |= {"environment": sglang_environment(one), "arguments": arguments}
    return _json({"simlab": simlab, **slots}), notes


def _tensorrt_llm(one: ExportedPolicy, notes: list[str], texts: ExportedTexts, draft_tokens: int | None) -> Made:

    settings = tensorrt_llm_settings(one)
    forced = f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={tensorrt_llm_forced(one)!r}"
    if one.is_chain and not one.choices:
        notes = [*notes, f"No draft_len_schedule: there is a latency profile of one batch size only. {HOW}."]
    elif not one.is_chain and one.policy.name != BEAM:
        said = (
            f"TensorRT-LLM has no tree like that of {one.policy.label}: its one tree is EAGLE-3's dynamic tree, for "
            f"which name -p {BEAM}. This is a chain as deep, for a load test."
        )
        notes = [*notes, *width_note(one), said]
    comments = [*notes, f"For a load test: {forced}", json.dumps(stamp(one, TENSORRT_LLM, []), ensure_ascii=False)]
    comments.append("Add decoding_type where it is not there, and speculative_model.")
    lines = [f"# {line}" for comment in comments for line in comment.splitlines()]
    return "\n".join([*lines, "speculative_config:", *_yaml(settings, "  "), ""]), notes


def _yaml(value: dict[str, object], indent: str) -> list[str]:
    lines = []
    for key, one in value.items():
        if isinstance(one, dict):
            lines += [f"{indent}{key}:", *_yaml(one, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(one) if isinstance(one, bool) else one}")
    return lines


def _modelopt(one: ExportedPolicy, notes: list[str], texts: ExportedTexts, draft_tokens: int | None) -> Made:

    kept = texts.trace.manifest.draft_sets[texts.draft]
    by_length = _by_length(one.deepest, texts) if one.is_chain else {}
    target, drafter = (
        asdict(model) | {"name": short_name(model.name)} for model in (texts.trace.manifest.target, kept.model)
    )
    profile = speculation_profile(one, metadata.version("simlab"), target, drafter, by_length)
    notes = [
        *notes,
        "EXPERIMENTAL: the schema of speculation_profile.json is still under review; see docs/how_to/export.md.",
    ]
    return _json(profile), notes


def _by_length(longest: int, texts: ExportedTexts) -> dict[int, float]:
    """Acceptance length of the chains up to a length."""
    named = chains(longest)
    replay, totals = Replay([(one.policy, None) for one in named]), np.zeros((len(named), len(COUNTS)), np.int64)
    for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
        totals += replay.sums(some).counts.sum(axis=1)
    rounds, committed = totals[:, ROUNDS], totals[:, COMMITTED]
    return {length: float(committed[length] / rounds[length]) for length in range(1, longest + 1)}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_MAKERS = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm, "modelopt": _modelopt}
