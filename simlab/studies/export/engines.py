"""``simlab export --format vllm``, ``sglang``, ``tensorrt-llm`` and ``modelopt``: settings for serving engines."""

import argparse
import json
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UsageError
from simlab.policy import is_plain_decoding
from simlab.replay import check_needs
from simlab.studies.export.batches import (
    HOW,
    Texts,
    batch_table,
    chains,
    has_table,
    priced_batches,
    texts_of_options,
)
from simlab.studies.export.notes import about, notes_of, short_name, stamp, width_note
from simlab.studies.inputs.shelf import CommandShelf, in_sample_note
from simlab.studies.replay.run import ROOTS_AT_ONCE

if TYPE_CHECKING:
    from simlab.analysis.export.engine_settings import ExportedPolicy
    from simlab.analysis.table.acceptance import Acceptance
    from simlab.policies.parsing.parse import NamedPolicy

ENGINES = ("vllm", "sglang", "tensorrt-llm", "modelopt")

Made = tuple[str, list[str]]
"""The file, and what to know beside it."""

_NO_TREES = "The prices of several batch sizes are left aside: a table over them is of chains; name -p chain for it."


def engine_text(options: argparse.Namespace) -> tuple[str, str, list[str]]:
    """The file, a sentence that says what is in it, and what else to know.

    Raises:
        SimlabError: the trace, the prices or the engine do not hold what is asked for.
    """
    from simlab.analysis.export.engine_settings import CHAIN, ExportedPolicy

    if options.format == "modelopt" and len(options.cost or []) > 1:
        raise UsageError(f"a profile is of one machine's prices; got {len(options.cost)} times --cost")
    texts = texts_of_options(options)
    priced = priced_batches(options.cost or [], options.batches, texts, options.limit)
    shelf = CommandShelf(priced[0].prices, texts.trace, texts.draft)
    policy = _policy(options.policy, shelf, texts)
    kept = texts.trace.manifest.draft_sets[texts.draft]
    asked = has_table(priced, options.batches)
    choosing = asked and (options.format == "vllm" or policy.name == CHAIN)
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
        *([in_sample_note([policy.label])] if shelf.in_sample([policy]) else []),
    ]
    make: Callable[[ExportedPolicy, list[str], Texts, int | None], Made] = _MAKERS[options.format]
    text, notes = make(one, notes, texts, options.draft_tokens)
    return text, f"Settings of {policy.label} for {options.format}", notes


def _policy(typed: str, shelf: CommandShelf, texts: Texts) -> "NamedPolicy":
    from simlab.policies.parsing.parse import parse_policies

    found = parse_policies([typed], shelf)
    if len(found) != 1:
        raise UsageError(f"`{typed}` names {len(found)} policies; settings are of one, so name one")
    if is_plain_decoding(found[0].policy):
        raise UsageError("plain decoding drafts nothing, so it has no acceptance; name a policy such as chain")
    kept = texts.trace.manifest.draft_sets[texts.draft]
    check_needs(found[0].policy, kept.exact_budget, kept.min_width)
    return found[0]


def _acceptance(policy: "NamedPolicy", texts: Texts) -> "Acceptance":
    """What the policy's rounds committed, counted."""
    from tqdm import tqdm

    from simlab.analysis.table.acceptance import acceptance_of
    from simlab.policies.engine.replay import Replay

    replay, found = Replay([(policy.policy, None)]), []
    with tqdm(total=len(texts.wanted), desc="export", unit="sequence", delay=2, disable=texts.hidden) as bar:
        for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
            columns = replay.rounds(some)[0].columns(some)
            found += [(text.prompt, rounds) for text, rounds in zip(some.sequences, columns, strict=True)]
            bar.update(len(some.sequences))
    return acceptance_of(found)


def _vllm(one: "ExportedPolicy", notes: list[str], texts: Texts, draft_tokens: int | None) -> Made:
    from simlab.analysis.export.engine_settings import vllm_settings
    from simlab.analysis.export.engine_sources import VLLM

    parts = vllm_settings(one, draft_tokens)
    notes = [*notes, *width_note(one)]
    if "dynamic" not in parts:
        notes = [*notes, f"No batch-to-K table: there are prices of one batch size only. {HOW}."]
    return _json({"simlab": stamp(one, VLLM, notes), **parts}), notes


def _sglang(one: "ExportedPolicy", notes: list[str], texts: Texts, draft_tokens: int | None) -> Made:
    from simlab.analysis.export.engine_settings import sglang_adaptive, sglang_arguments, sglang_environment
    from simlab.analysis.export.engine_sources import SGLANG

    slots = sglang_adaptive(one)
    if slots:
        said = (
            "SGLang reads these steps with --speculative-algorithm EAGLE or EAGLE3 and --speculative-eagle-topk 1 "
            "only, where each step is a pass of the drafter; see that the prices are of such a drafter."
        )
    elif one.is_chain:
        said = f"No adaptive steps: there are prices of one batch size only. {HOW}."
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


def _tensorrt_llm(one: "ExportedPolicy", notes: list[str], texts: Texts, draft_tokens: int | None) -> Made:
    from simlab.analysis.export.engine_settings import BEAM, tensorrt_llm_forced, tensorrt_llm_settings
    from simlab.analysis.export.engine_sources import TENSORRT_LLM

    settings = tensorrt_llm_settings(one)
    forced = f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={tensorrt_llm_forced(one)!r}"
    if one.is_chain and not one.choices:
        notes = [*notes, f"No draft_len_schedule: there are prices of one batch size only. {HOW}."]
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


def _yaml(value: "dict[str, object]", indent: str) -> list[str]:
    lines = []
    for key, one in value.items():
        if isinstance(one, dict):
            lines += [f"{indent}{key}:", *_yaml(one, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(one) if isinstance(one, bool) else one}")
    return lines


def _modelopt(one: "ExportedPolicy", notes: list[str], texts: Texts, draft_tokens: int | None) -> Made:
    from dataclasses import asdict

    from simlab.analysis.export.speculation_profile import speculation_profile

    kept = texts.trace.manifest.draft_sets[texts.draft]
    by_length = _by_length(one.deepest, texts) if one.is_chain else {}
    target, drafter = (
        asdict(model) | {"name": short_name(model.name)} for model in (texts.trace.manifest.target, kept.model)
    )
    profile = speculation_profile(one, metadata.version("simlab"), target, drafter, by_length)
    notes = [
        *notes,
        "EXPERIMENTAL: the schema of speculation_profile.json is still under review; see docs/exporting.md.",
    ]
    return _json(profile), notes


def _by_length(longest: int, texts: Texts) -> dict[int, float]:
    """Acceptance length of the chains up to a length."""
    from simlab.policies.engine.replay import Replay

    named = chains(longest)
    replay, totals = Replay([(one.policy, None) for one in named]), np.zeros((len(named), 5), np.int64)
    for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE):
        totals += replay.sums(some).counts.sum(axis=1)
    rounds, committed = totals[:, 0], totals[:, 3]
    return {length: float(committed[length] / rounds[length]) for length in range(1, longest + 1)}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_MAKERS = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm, "modelopt": _modelopt}
