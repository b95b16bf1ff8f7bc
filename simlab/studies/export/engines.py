"""``simlab export --format vllm``, ``sglang``, ``tensorrt-llm`` and others: settings for serving engines."""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.analysis.export.aisimulate import AISIMULATE, aisimulate_settings, dynamo_flags, replayed
from simlab.analysis.export.batch_choices import BatchChoice, batch_choice
from simlab.analysis.export.edge_llm import EDGE_LLM, edge_llm_commands, edge_llm_settings
from simlab.analysis.export.engine_settings import (
    CHAIN,
    DFLASH,
    DRAFTERS,
    EAGLE3,
    HEAD_TREE,
    MODELOPT,
    SGLANG,
    SGLANG_SERVER,
    TENSORRT_LLM,
    UNO,
    VLLM,
    WRITTEN,
    EngineSource,
    ExportedPolicy,
    block_note,
    cannot_run,
    flag_words,
    head_shape,
    method_of,
    sglang_environment,
    sglang_settings,
    short_name,
    start_lines,
    tensorrt_llm_environment,
    tensorrt_llm_settings,
    vllm_command,
    vllm_settings,
)
from simlab.analysis.export.speculation_profile import speculation_profile
from simlab.analysis.export.uno import SGLANG_UNO, uno_settings
from simlab.analysis.table.summaries import Acceptance, BatchPrices, acceptance_of
from simlab.channels.needs import channels_read
from simlab.errors import CostError, UsageError
from simlab.ids import VERSION
from simlab.options import paths
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import is_plain_decoding
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts, in_sample_note
from simlab.studies.inputs.prices import HOW, Prices, notes_on, priced_batches
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.replay.run import ROOTS_AT_ONCE, OwnBlocks, ReplayRun, replayed_on_own_blocks
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import as_json
from simlab.traces.reader import Trace
from simlab.traces.results.rows import results_at
from simlab.untrusted.visible import visible

if TYPE_CHECKING:
    from simlab.studies.export.export import ExportOptions


@dataclass(frozen=True, slots=True)
class ExportedTexts:
    """The texts that are replayed.

    Attributes:
        trace: where they are.
        draft: the draft set.
        wanted: the sequences.
        progress: whether a bar is shown; None: on a terminal.
        limit: of the first so many prompts; None: of all.
        own_blocks: other traces of the same texts, each of the block that an engine drafts for so many tokens.
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    progress: bool | None
    limit: int | None = None
    own_blocks: OwnBlocks = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Tokens that the trace's own block drafts."""
        return self.trace.manifest.draft_sets[self.draft].depth

    def policy(self, typed: str, artefacts: TraceArtefacts) -> NamedPolicy:
        """The one policy that was asked for, if the trace holds what it reads."""
        policies = parse_policies([typed], artefacts)
        if len(policies) != 1:
            raise UsageError(f"`{typed}` names {len(policies)} policies; a file is of one, so name one")
        check_needs(policies[0].policy, self.trace.holds(self.draft))
        return policies[0]

    def lengths(self, most: int) -> tuple[int, ...]:
        """Lengths of chains that can be replayed: with traces of their own blocks those alone, else all of them."""
        known = {*self.own_blocks, self.depth} if self.own_blocks else range(1, self.depth + 1)
        return tuple(sorted(length for length in known if length <= most))


# What stands beside the settings that ``simlab export`` writes for an engine: whose numbers, and what to know.


def about(texts: ExportedTexts) -> dict[str, Any]:
    """Where the numbers come from."""
    manifest, trace = texts.trace.manifest, texts.trace
    wanted = set(texts.wanted)
    prompts = [record.prompt for record in trace.sequences() if record.index in wanted]
    return {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[texts.draft],
        "target": short_name(manifest.target.name),
        "drafter": short_name(manifest.draft_sets[texts.draft].model.name),
        "dtype": manifest.dtype,
        "temperature": manifest.sampling.temperature,
        "prompts": len({(prompt.dataset, prompt.prompt_id) for prompt in prompts}),
        "sequences": len(prompts),
        "datasets": sorted({prompt.dataset for prompt in prompts}),
    }


def notes_of(policy: ExportedPolicy) -> list[str]:
    """What holds for every engine."""
    where = f"{policy.about['prompts']} prompts ({', '.join(policy.about['datasets'])})"
    length, interval = policy.acceptance.pooled.acceptance_length, policy.acceptance.interval
    shown = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    notes = [f"Acceptance length {length:.3f}{shown} of {policy.policy.label}, bonus token included, on {where}."]
    if policy.choices:
        notes.append(f"The chain of each batch size was chosen on the same {where}, by predicted tokens per second.")
    unclear = [str(choice.prices.batch) for choice in policy.choices if choice.length > 0 and 0 in choice.equal_lengths]
    if unclear:
        notes.append(
            f"At batch sizes {', '.join(unclear)} these prompts and prices cannot tell the choice from autoregressive "
            "decoding."
        )
    worked_out = [str(choice.prices.batch) for choice in policy.choices if choice.prices.what_if]
    if worked_out:
        notes.append(
            f"WHAT IF, hypothetical, not measured: the latencies of batch sizes {', '.join(worked_out)} are those of "
            "one text, in wider passes."
        )
    if policy.choices and min(choice.prices.batch for choice in policy.choices) > 1:
        notes.append("No latency is known below the smallest batch size here; smaller ones take its choice.")
    return notes


def stamp(policy: ExportedPolicy, source: EngineSource, notes: list[str]) -> dict[str, object]:
    """Whose numbers these are, for a reader of the file."""
    pooled, interval = policy.acceptance.pooled, policy.acceptance.interval
    return {
        "format": "simlab-export",
        "simlab_version": VERSION,
        "engine": asdict(source),
        "policy": policy.policy.label,
        "policy_id": policy.policy.policy_id,
        "artefacts": dict(getattr(policy.policy.policy, "artefacts", {})),
        **policy.about,
        "rounds": pooled.rounds,
        "committed": pooled.committed,
        "clipped": policy.acceptance.clipped,
        "acceptance_length": pooled.acceptance_length,
        **interval.row("acceptance_length_ci"),
        "acceptance_length_macro": policy.acceptance.acceptance_length_macro,
        "batches": [choice.row() for choice in policy.choices],
        "notes": notes,
    }


TABLED: Mapping[str, tuple[str, ...]] = {"vllm": (DFLASH, EAGLE3), "tensorrt-llm": (DFLASH,)}
"""Those that draft another length at another batch size, with these drafters. SGLang does so with EAGLE's only."""

_NO_TREES = (
    "The latency profiles of several batch sizes are left aside: a table over them is of chains; name -p chain for it."
)
_NAMES = "Models have their names of the trace; replace them by the paths that the server knows."

Made = tuple[str, list[str]]
"""The file, and what to know beside it."""


def engine_file(texts: ExportedTexts, options: "ExportOptions") -> tuple[str, str, tuple[str, ...]]:
    """The settings of one policy for an engine, and how to start it with them.

    Returns:
        The file; what is in it, in a sentence; what else to know, of which the last lines start a server, or say why
        none can run the policy.
    """
    engine, costs = options.file_format or "", paths(options.cost)
    if engine not in TABLED and len(costs) > 1:
        raise UsageError(f"{engine} takes one latency profile, for a policy that weighs it; got {len(costs)} --cost")
    priced = priced_batches(costs, options.batch, texts.trace, texts.draft, options.limit)
    artefacts = TraceArtefacts(priced[0][1], texts.trace, texts.draft)
    policy = texts.policy(options.policy or "", artefacts)
    if is_plain_decoding(policy.policy):
        raise UsageError("autoregressive decoding drafts nothing, so it has no acceptance; name a policy such as chain")
    has_table = options.batch is not None or len(priced) > 1
    exported = _exported(engine, policy, texts, priced if has_table else ())
    source, make = _MAKERS[engine]
    notes = [
        *notes_of(exported),
        *notes_on(texts.trace, (prices for _, prices, _ in priced if has_table)),
        *filter(None, [block_note(source.name, exported)]),
        *([_NO_TREES] if has_table and not exported.is_chain else []),
        *([in_sample_note([policy.label])] if artefacts.in_sample([policy]) else []),
    ]
    text, lines = make(exported, notes, texts, options)
    return text, f"Settings of {policy.label} for {engine}", tuple(lines)


def _exported(
    engine: str, policy: NamedPolicy, texts: ExportedTexts, priced: Sequence[tuple[int, Prices, bool]]
) -> ExportedPolicy:
    manifest = texts.trace.manifest
    draft_set = manifest.draft_sets[texts.draft]
    method, drafter = _drafter(policy, manifest, texts.draft)
    if method not in WRITTEN[engine]:
        those = ", ".join(name for name, methods in WRITTEN.items() if method in methods)
        raise UsageError(
            f"settings of {DRAFTERS[method]} are written for {those}, not for {engine}; choose one of these, or write "
            "a table: --format markdown"
        )
    is_tabled = policy.name == CHAIN and method in TABLED.get(engine, ())
    if method == EAGLE3:
        head_shape(policy, draft_set.depth)  # refuses what no engine drafts, before anything is replayed
    return ExportedPolicy(
        policy=policy,
        acceptance=_acceptance(policy, texts),
        target=short_name(manifest.target.name),
        drafter=short_name(drafter),
        depth=draft_set.depth,
        block_size=draft_set.block_size,
        choices=_batch_table(priced, texts) if priced and is_tabled else (),
        own_blocks=tuple(sorted(texts.own_blocks)),
        about=about(texts) | {"drafter": short_name(drafter)},
        method=method,
    )


def _drafter(policy: NamedPolicy, manifest: Manifest, draft: str) -> tuple[str, str]:
    """What engines call what drafts for a policy, and its name."""
    draft_set = manifest.draft_sets[draft]
    if policy.name == HEAD_TREE:
        return EAGLE3, manifest.channels[str(policy.settings["channel"])].producer.name
    if method := method_of(draft_set):
        return method, draft_set.model.name
    if draft_set.root_seen:
        raise UsageError(
            f"simlab writes no engine's settings of an imported chain, since nobody says what drafted it, and draft "
            f"set {draft} is such; write a table: --format markdown"
        )
    raise UsageError(
        f"settings for engines are of drafters, and the draft set {draft} is of the target's own masks, which no "
        "engine here reads; choose a draft set of a drafter with --draft-set, or write a table: --format markdown"
    )


def _batch_table(priced: Sequence[tuple[int, Prices, bool]], texts: ExportedTexts) -> list[BatchChoice]:
    """The fastest chain at each batch size, of all lengths that have prices."""
    machines, lengths = [], dict[str, int]()
    for batch, prices, what_if in priced:
        cost = prices.cost
        if cost is None:
            raise CostError(f"a batch size needs a latency profile. {prices.no_latency_reason}")
        about = BatchPrices(batch, cost.cost_id, prices.heading, what_if)
        chains = parse_policies(["ar", *(f"chain:length={length}" for length in texts.lengths(cost.most_drafted))])
        lengths |= {chain.policy_id: chain.policy.budget or 0 for chain in chains}
        machines.append((about, PoliciesOnMachine(prices, tuple(chains))))
    run = ReplayRun(progress=texts.progress, bounds=False)
    rows = replayed_on_own_blocks(
        texts.trace, texts.draft, [asked for _, asked in machines], texts.own_blocks, texts.limit, run
    )
    return [batch_choice(results_at(rows, about.cost_id), lengths, about) for about, _ in machines]


def _acceptance(policy: NamedPolicy, texts: ExportedTexts) -> Acceptance:
    """What the policy's rounds committed, counted."""
    replay, by_prompt = Replay([(policy.policy, None)]), []
    channels = channels_read([policy.policy])
    with progress_bar(texts.progress, "export", "sequence", len(texts.wanted)) as bar:
        for part in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE, channels):
            columns = replay.rounds(part)[0].columns(part)
            by_prompt += [(text.prompt, rounds) for text, rounds in zip(part.sequences, columns, strict=True)]
            bar.update(len(part.sequences))
    return acceptance_of(by_prompt)


def _vllm(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    settings = vllm_settings(policy, options.draft_tokens)
    if policy.is_chain and not policy.choices:
        notes = [*notes, f"No table of batch sizes: there is a latency profile of one only. {HOW}."]
    commands = {name: vllm_command(policy.target, config) for name, config in settings.items()}
    lines = [*notes, *([] if policy.is_chain else [cannot_run(VLLM.name, policy)])]
    file = {"simlab": stamp(policy, VLLM, lines), **settings, "commands": commands}
    return _json(file), [*notes, *_ending(policy, VLLM, commands)]


def _sglang(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    if policy.method == UNO:
        return _sglang_uno(policy, notes)
    settings = sglang_settings(policy)
    commands = start_lines([*SGLANG_SERVER, *flag_words(settings)], sglang_environment(policy), policy.is_served)
    ending = _ending(policy, SGLANG, commands)
    return _commented(policy, SGLANG, notes, _yaml(settings), ending), [*notes, *ending]


def _sglang_uno(policy: ExportedPolicy, notes: list[str]) -> Made:
    settings = uno_settings(policy, policy.about["temperature"])
    per_cycle = 2 * policy.acceptance.pooled.acceptance_length
    lines = [
        *notes,
        f"A cycle of UNO's is two passes. SGLang's spec_accept_length counts its tokens: about {per_cycle:.2f} here.",
        "speculative-num-draft-tokens counts the root.",
        "SGLang draws other noise in each run, of the whole vocabulary, so its rounds have the law of these at best.",
        "SGLang wants CUDA, FlashAttention 3 and one GPU, and no grammar, log-probabilities or penalties with it.",
    ]
    ending = [_NAMES, f"To serve {policy.policy.label}:", shlex.join([*SGLANG_SERVER, *flag_words(settings)])]
    return _commented(policy, SGLANG_UNO, lines, _yaml(settings), ending), [*lines, *ending]


def _tensorrt_llm(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    settings = tensorrt_llm_settings(policy)
    if policy.is_chain and not policy.choices and policy.method == DFLASH:
        notes = [*notes, f"No draft_len_schedule: there is a latency profile of one batch size only. {HOW}."]
    out = Path(options.out or "tensorrt-llm.yaml")
    words, load_test = ["trtllm-serve", policy.target, "--extra_llm_api_options"], tensorrt_llm_environment(policy)
    here, beside = (
        _ending(policy, TENSORRT_LLM, start_lines([*words, file], load_test, policy.is_served))
        for file in (str(out), out.name)
    )
    text = _commented(policy, TENSORRT_LLM, notes, ["speculative_config:", *_yaml(settings, "  ")], beside)
    return text, [*notes, *([] if options.out else [f"The commands read this file as {out}."]), *here]


def _edge_llm(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    settings = edge_llm_settings(policy, policy.about["temperature"])
    commands = edge_llm_commands(policy, settings)
    lines = [*notes, "specVerifySize counts the root, the other numbers do not."]
    file = {"simlab": stamp(policy, EDGE_LLM, lines), "flags": settings, "commands": commands}
    *before, serve = commands.values()
    ending = [_NAMES, "To export and build its two engines, ONNX and ENGINES being folders:", *before]
    return _json(file), [*lines, *ending, f"To run {policy.policy.label}:", serve]


def _aisimulate(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    settings, num = aisimulate_settings(policy), replayed(policy)
    cut = f"{policy.policy.label} drafts {policy.deepest} tokens, and {num} are replayed there, so it is cut."
    lines = [
        *notes,
        *([cut] if num < policy.deepest else []),
        "expected_accepted_tokens leaves the bonus token out; it is one for all batch sizes and contexts.",
    ]
    ending = ["The same as flags of Dynamo, with a rate for each token:", dynamo_flags(policy)]
    return _commented(policy, AISIMULATE, lines, ["speculation:", *_yaml(settings, "  ")], ending), [*lines, *ending]


def _modelopt(policy: ExportedPolicy, notes: list[str], texts: ExportedTexts, options: "ExportOptions") -> Made:
    manifest = texts.trace.manifest
    target, drafter = (
        {key: str(value) for key, value in as_json(model).items()} | {"name": short_name(model.name)}
        for model in (manifest.target, manifest.draft_sets[texts.draft].model)
    )
    profile = speculation_profile(policy, target, drafter)
    notes = [
        *notes,
        "EXPERIMENTAL: the schema of speculation_profile.json is still under review; see docs/how_to/export.md.",
        "These rates are predicted by replay, so measured is false.",
        "Model-Optimizer serves nothing: its profile is read by planners, and --format vllm has a line that serves.",
    ]
    return _json(profile), notes


def _ending(policy: ExportedPolicy, source: EngineSource, commands: Mapping[str, str]) -> list[str]:
    """The last lines: commands below what they are for, or why nothing serves the policy."""
    lines = [
        _NAMES,
        f"To load test {source.name}, with as many tokens accepted as {policy.policy.label} would:",
        commands["load_test"],
    ]
    if "serve" not in commands:
        return [*lines, cannot_run(source.name, policy)]
    served = "the chain of each batch size" if policy.choices else policy.policy.label
    return [*lines, f"To serve {served}:", commands["serve"]]


def _commented(
    policy: ExportedPolicy, source: EngineSource, notes: Sequence[str], settings: Sequence[str], ending: Sequence[str]
) -> str:
    """YAML with what to know and whose numbers they are above it, and how to use it below."""
    known = [*notes, json.dumps(stamp(policy, source, []), ensure_ascii=False)]
    # Names are other people's: none of them ends a comment, or steers the terminal that the file is shown in.
    above, below = ([f"# {visible(' '.join(line.splitlines()))}" for line in lines] for lines in (known, ending))
    return "\n".join([*above, *settings, *below, ""])


def _yaml(value: Mapping[str, object], indent: str = "") -> list[str]:
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"{indent}{key}:", *_yaml(item, f"{indent}  ")]
        else:
            # What cannot be seen is written as its number, which YAML reads as what it stands for.
            lines.append(f"{indent}{key}: {json.dumps(item, ensure_ascii=visible(str(item)) != str(item))}")
    return lines


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_Maker = Callable[[ExportedPolicy, list[str], ExportedTexts, "ExportOptions"], Made]
_MAKERS: Mapping[str, tuple[EngineSource, _Maker]] = {
    "vllm": (VLLM, _vllm),
    "sglang": (SGLANG, _sglang),
    "tensorrt-llm": (TENSORRT_LLM, _tensorrt_llm),
    "tensorrt-edge-llm": (EDGE_LLM, _edge_llm),
    "modelopt": (MODELOPT, _modelopt),
    "aisimulate": (AISIMULATE, _aisimulate),
}
"""Where the fields of each engine's settings were read, and what writes them."""
