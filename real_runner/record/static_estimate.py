"""What a recording takes, before anything but two configurations is fetched: memory, disk, passes.

Every figure here is computed: from the models' shapes, the prompts' bytes, and the bytes that the packaged trace has
for a candidate. `simlab.real_runner.record.dry_run` measures instead, with the models at hand.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import torch
from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import check_beside, config_file, packaged_checkpoints, stored_tensors
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, MASK, OFFSETS
from simlab.real_runner.drafters.config import DFlashConfig, check_sizes, is_padding, padding_note
from simlab.real_runner.drafters.ranked import blocks_at_once
from simlab.real_runner.execution.executions import context_for, rows_for
from simlab.real_runner.models import dtype_of
from simlab.real_runner.networks.adapter.config import AdapterConfig
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.networks.eagle3.config import Eagle3Config
from simlab.real_runner.networks.known import DraftConfig, network_of, read_config, read_fields, trees_bytes
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import Conversation, PromptRecord
from simlab.real_runner.record.record import shards_of
from simlab.real_runner.record.sources import (
    Completion,
    CompletionIds,
    Source,
    num_turns,
    read_sources,
    shared_kwargs,
)
from simlab.real_runner.record.texts import TOKENS_PER_PASS
from simlab.real_runner.tap_offset import parse_tap_offset
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.hub_files import (
    BESIDE_DRAFTERS,
    CONFIG,
    fetch,
    is_hub_id,
)
from simlab.real_runner.targets.loading import target_config, target_shape
from simlab.real_runner.targets.model import LEAST_ROOM
from simlab.real_runner.targets.placement import check_head, check_supported
from simlab.real_runner.targets.quantised import QUANTISATION, check_quantised, quantisation_of
from simlab.traces.artefacts.kinds import find_packaged_config

# Both models without their weights: how large they are and whether they fit, from two ``config.json`` alone.
#
# Tensors are made on torch's device ``meta``, which gives them shapes and no memory; so every architecture that
# transformers knows is counted as it would be loaded.


SizedConfig: TypeAlias = DFlashConfig | Eagle3Config
"""What drafts with weights of its own."""


@dataclass(frozen=True, slots=True)
class ModelShapes:
    """Sizes of a target and a drafter that fit each other.

    Attributes:
        config: of the drafter.
        target_parameters: of the target; with hidden states from elsewhere without its layers.
        drafter_parameters: of the drafter; an embedding and a head of its own come on top, where it has them and its
            configuration does not say so.
        whole_target_parameters: with its layers in any case.
        num_layers: of the target.
        hidden_size: of the target.
        feed_forward: inner width of its feed-forward network.
        vocab_size: of the target.
        padding: what to tell people of a drafter whose vocabulary differs by padding; empty where it does not.
        key_value_elements: numbers that the target keeps of one token, in all layers; 0 where it does not run.
        quantised: how the target's weights are stored, see `simlab.traces.format.manifest_entries.ModelInfo`.
    """

    config: SizedConfig
    target_parameters: int
    drafter_parameters: int
    whole_target_parameters: int
    num_layers: int
    hidden_size: int
    feed_forward: int
    vocab_size: int
    padding: str
    key_value_elements: int
    quantised: str


def read_shapes(options: RecordOptions) -> ModelShapes:
    """The shapes of both models, seen to fit; of the hub only the two configurations are fetched.

    Raises:
        ModelError: a configuration cannot be had or read, or simlab would refuse the models.
    """
    model, quantised = _target_shape(options)
    text = model.config
    config = any_config(options).for_target(text.num_hidden_layers)
    padding = ""
    if is_padding(config.vocab_size, text.vocab_size) and _may_borrow(options.draft_name):
        padding = padding_note(config.vocab_size, options.target_name, text.vocab_size)
        config = config.of_vocabulary(text.vocab_size)
    check_sizes(config, options.target_name, text.num_hidden_layers, text.hidden_size, text.vocab_size)
    counted = dict(cast(nn.Module, model).named_parameters())
    weights = [weight for name, weight in counted.items() if options.hidden_states is None or ".layers." not in name]
    kept_elements = 0
    if options.hidden_states is None:
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        kept_elements = 2 * text.num_hidden_layers * text.num_key_value_heads * head
    return ModelShapes(
        config=config,
        target_parameters=sum(weight.numel() for weight in weights),
        drafter_parameters=sum(math.prod(shape) for _, shape in config.shapes())
        + (config.draft_vocab_size or 0) * config.hidden_size,
        whole_target_parameters=sum(weight.numel() for weight in counted.values()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        feed_forward=getattr(text, "intermediate_size", text.hidden_size),
        vocab_size=text.vocab_size,
        padding=padding,
        key_value_elements=kept_elements,
        quantised=quantised,
    )


def _may_borrow(draft: str) -> bool:
    """Whether a drafter has neither an embedding nor a head of all tokens; the hub's weights are not fetched for it."""
    if not is_at_hand(draft):
        return True
    names = set(stored_tensors(find_drafter(draft).folder))
    return EMBEDDING not in names and (HEAD not in names or not names.isdisjoint((OFFSETS, MASK)))


def _target_shape(options: RecordOptions) -> tuple[PreTrainedModel, str]:
    """The target without its weights, and how these are stored."""
    name, config, dtype = options.target_name, _target_config(options.target_name), dtype_of(options.model_dtype)
    if options.hidden_states is not None:
        # The layers of a target whose states an engine computed are never loaded.
        text = config.get_text_config()
        check_head(name, text)
        return target_shape(name, text, dtype), quantisation_of({QUANTISATION: getattr(config, QUANTISATION, None)})
    stored = check_quantised(name, config)
    model = target_shape(name, config, dtype)
    check_supported(name, model)
    return model, stored


def _target_config(name: str) -> PretrainedConfig:
    if name == builtin.NAME and builtin.target_at_hand() is None:
        sizes = find_packaged_config(builtin.GGUF_SHA256)
        assert sizes is not None
        return AutoConfig.for_model("llama", tie_word_embeddings=True, **sizes)
    if name == builtin.NAME:
        folder = builtin.builtin_target_dir()
    elif Path(name).is_dir() or not is_hub_id(name):
        folder = Path(name)
    else:
        folder = fetch("target", name, [CONFIG]).folder
    return target_config(name, folder)


def any_config(options: RecordOptions) -> SizedConfig:
    """The configuration of what a recording is to draft with; of the hub only that file is fetched."""
    fields = config_fields(options.draft_name)
    network = network_of(fields)
    if network is None or not network.drafts_alone:
        return drafter_config(options.draft_name, options.tap_offset, options.block)
    head = cast(DraftConfig, network.reads(fields))
    if isinstance(head, AdapterConfig):
        raise ModelError(
            "what a target that drafts for itself takes is measured, and not computed from configurations; give "
            "--dry-run sample"
        )
    return head if options.block is None else head.with_block(options.block)


def drafter_config(name: str, tap_offset: str | None, block: int | None) -> DFlashConfig:
    """A drafter's configuration, with the layer numbers and block that were asked for; of the hub only that file.

    Args:
        name: of the drafter.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`, or None.
        block: slots of its block, the root's counted; None: as the checkpoint has it.
    """
    config = read_config(config_fields(name))
    offset = parse_tap_offset(tap_offset)
    config = config if offset is None else config.with_tap_offset(offset)
    return config if block is None else config.with_block(block)


def is_at_hand(name: str) -> bool:
    """Whether a checkpoint comes with simlab or is named by its place, so that nothing is fetched for it."""
    return name in packaged_checkpoints() or Path(name).exists() or name.endswith(".safetensors")


def config_fields(name: str) -> dict[str, object]:
    """The ``config.json`` of a checkpoint; of the hub only the JSON is fetched."""
    is_fetched = not is_at_hand(name) and is_hub_id(name)
    wanted = [CONFIG, *BESIDE_DRAFTERS]
    path = fetch("drafter", name, wanted).folder if is_fetched else find_drafter(name).folder
    fields = read_fields(config_file(path))
    check_beside(path)
    return fields


BYTES_PER_TOKEN = 4
"""Of prompts that are not tokenised; English has somewhat more, code and other scripts have fewer."""

CANDIDATE_BYTES = 4.95
"""Of the packaged trace: bytes on disk of a kept candidate with its share of the rest."""

_TOKEN_ROW_BYTES, _KEPT_OVER_WIDTH = 99, 1.07
"""Of the packaged trace: bytes of the target's own row, and candidates kept at a depth for each of ``min_width``."""

_COPIES_ON_CPU, _COPIES_ON_GPU = 3, 6
_BYTES_A_CANDIDATE = 80
"""On a GPU, of each that may be kept, while those that are kept are chosen and packed."""

_ROWS_OF_LAWS = 128
_COPIES_OF_WEIGHTS = 4


def _lengths(source: Source, most: int) -> list[tuple[int, int]]:
    """Tokens of prompt and text of each turn; of texts that are to be written, the most."""
    if isinstance(source, PromptRecord):
        first = _prompt_tokens(source.conversation, source.template_kwargs)
        asked = [_tokens(text) for text in source.later_turns]
        return [(first + sum(asked[:turn]) + turn * most, most) for turn in range(num_turns(source))]
    if isinstance(source, Completion):
        given = source.given
        if isinstance(given, CompletionIds):
            return [(len(given.prompt_token_ids), len(given.token_ids))]
        return [(_prompt_tokens(given.conversation, given.template_kwargs), _tokens(given.text))]
    return [(len(turn.prompt.token_ids), len(turn.text)) for turn in source]


def _prompt_tokens(conversation: Conversation, own: Mapping[str, object]) -> int:
    """Tokens of a prompt, those of its tools and of calls among them as JSON."""
    texts = [
        text
        for message in conversation
        for text in (message.content, json.dumps(message.others) if message.others else "")
    ]
    return sum(map(_tokens, [*texts, json.dumps(own["tools"]) if "tools" in own else ""]))


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def key_value_bytes(shapes: ModelShapes, element_bytes: int, rows: int, longest_prompt: int, new_tokens: int) -> int:
    """Keys and values of texts that are written together, at most: while room is doubled, both old and new.

    Args:
        shapes: of the models.
        element_bytes: of a number.
        rows: texts at a time.
        longest_prompt: in tokens.
        new_tokens: of each text; the last one is never read.
    """
    room, most, filled = longest_prompt + LEAST_ROOM, longest_prompt + LEAST_ROOM, longest_prompt + new_tokens - 1
    while room < filled:
        room, most = max(2 * room, room + 1 + LEAST_ROOM), room + max(2 * room, room + 1 + LEAST_ROOM)
    return shapes.key_value_elements * element_bytes * rows * most


def _pass_bytes(shapes: ModelShapes, element_bytes: int, rows: int, tokens: int) -> int:
    """The largest pass: what a layer's feed-forward network and its neighbours hold, and logits of each text."""
    within = rows * tokens * (3 * shapes.feed_forward + 4 * shapes.hidden_size) * element_bytes
    return within + rows * shapes.vocab_size * (element_bytes + 4)


def _recording_bytes(options: RecordOptions, shapes: ModelShapes, element_bytes: int, tokens: int) -> int:
    """A pass over a text, on a GPU over several, with taps, the target's distributions and the drafter's candidates."""
    config, is_cpu = shapes.config, options.first_device == "cpu"
    read = tokens if is_cpu else max(tokens, TOKENS_PER_PASS)
    taps = read * len(config.target_layer_ids) * shapes.hidden_size * element_bytes
    laws = _ROWS_OF_LAWS * shapes.vocab_size * 4 * _COPIES_ON_CPU
    blocks = blocks_at_once(config, tokens, is_cpu=is_cpu)
    weights = config.num_attention_heads * config.block_size * (tokens + config.block_size) * blocks
    proposable = config.draft_vocab_size or config.vocab_size
    candidates = blocks * config.depth * proposable * 4 * (_COPIES_ON_CPU if is_cpu else _COPIES_ON_GPU)
    if not is_cpu:
        candidates += read * config.depth * min(options.kept.most, proposable) * _BYTES_A_CANDIDATE
    whole = _pass_bytes(shapes, element_bytes, 1, read) if options.hidden_states is None else 0
    return taps + whole + max(laws, candidates + weights * 4 * _COPIES_OF_WEIGHTS)


def trace_bytes(positions: int, depth: int, min_width: int) -> int:
    """Bytes of a trace on disk, from those of the packaged one.

    Args:
        positions: tokens of all texts.
        depth: tokens that are drafted ahead.
        min_width: candidates that are kept at each depth, at least.
    """
    return round(positions * _TOKEN_ROW_BYTES) + draft_bytes(positions, depth, min_width)


def draft_bytes(positions: int, depth: int, min_width: int) -> int:
    """Bytes that a draft set alone takes on disk."""
    return round(positions * depth * min_width * _KEPT_OVER_WIDTH * CANDIDATE_BYTES)


def estimate_text(options: RecordOptions) -> str:
    """What ``simlab record --dry-run`` prints."""
    sources, shapes = read_sources(options), read_shapes(options)
    size, device = dtype_of(options.model_dtype).itemsize, options.first_device
    lengths = [length for source in sources.items for length in _lengths(source, options.longest)]
    longest, new = max(prompt for prompt, _ in lengths), max(text for _, text in lengths)
    num_prompts, positions = len(sources.items), sum(text for _, text in lengths)
    texts = f" ({len(lengths)} texts)" if len(lengths) != num_prompts else ""
    kwargs = shared_kwargs(sources, options.template_kwargs)
    num_tools = sum("tools" in source.template_kwargs for source in sources.items if not isinstance(source, tuple))
    tools = f"; tools of {num_tools} prompts, refused where it does not read them" if num_tools else ""
    no_arguments = "no arguments (a model that thinks may think; see --chat-template-kwargs)"
    target, drafter = (_billions(num) for num in (shapes.whole_target_parameters, shapes.drafter_parameters))
    target_bytes, drafter_bytes = shapes.target_parameters * size, shapes.drafter_parameters * size
    recording = most = _recording_bytes(options, shapes, size, longest + new)
    bound, decoding, seconds = "about", list[str](), list[str]()
    if isinstance(sources.items[0], PromptRecord):
        # The target writes the texts, a token in each text of a batch at a time.
        rows, bound = min(options.batch_size, num_prompts), "at most"
        # If every text is as long as it may be.
        num_passes = sum(max(map(num_turns, batch)) for batch in shards_of(options, sources)) * options.longest
        key_values = key_value_bytes(shapes, size, rows, longest, new)
        if device != "cpu":
            # The prompts as they are read, and the store of captured passes.
            slots = rows * (longest + LEAST_ROOM) + rows_for(rows) * context_for(longest + new)
            key_values = max(key_values, shapes.key_value_elements * size * slots)
        held = key_values + _pass_bytes(shapes, size, rows, longest)
        most = max(held, recording)
        decoding.append(
            f"decoding        {size_text(held)}, of it keys and values {size_text(key_values)}: "
            f"{rows} texts of {longest} + {options.longest} tokens"
        )
        seconds.append(
            f"time            not estimated; {num_passes:,} passes read the target's weights, at least "
            f"{num_passes * target_bytes / 1e12:,.0f} s at 1 TB/s"
        )
    trees = round(positions * trees_bytes(shapes.config.draft_name, shapes.config.depth))
    of_trees = f", of it {size_text(trees)} for the head's trees" if trees else ""
    disk_bytes = trace_bytes(positions, shapes.config.depth, options.min_width) + trees
    stored = f"stored as {shapes.quantised}; dequantised to {options.model_dtype} when loaded"
    lines = [
        f"target          {options.target_name}: {target}, {shapes.num_layers} layers",
        *([f"weights         {stored}"] if shapes.quantised else []),
        f"drafter         {options.draft_name}: {drafter}, drafts {shapes.config.depth} tokens",
        *([f"vocabulary      {shapes.padding}"] if shapes.padding else []),
        f"prompts         {num_prompts}{texts}",
        f"chat template   {json.dumps(kwargs) if kwargs else no_arguments}{tools}",
        f"positions       {'at most ' if decoding else ''}{positions:,}",
        "",
        f"memory of {device}, {options.model_dtype}{_present(device)}",
        f"weights         {size_text(target_bytes)} target + {size_text(drafter_bytes)} drafter",
        *decoding,
        f"recording       {size_text(recording)}, {'one text' if device == 'cpu' else 'several texts'} at a time",
        (
            f"in all          about {size_text(target_bytes + drafter_bytes + most)}"
            f"{' on each device' if len(options.devices) > 1 else ''}"
        ),
        (
            f"audit           {size_text(4 * shapes.whole_target_parameters)} more in `simlab confirm`, the target in "
            "float32; --audit-device says where"
        ),
        "",
        f"disk            {bound} {size_text(disk_bytes)} for the trace{of_trees}",
        *seconds,
        "",
        f"Computed, not measured: from both config.json, and prompts at {BYTES_PER_TOKEN} bytes a token.",
        "`simlab record --dry-run sample` runs the models on some prompts and measures.",
    ]
    return "\n".join(lines)


def _present(device: str) -> str:
    """How much memory a GPU has, where it is there."""
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return ""
    return f" (it has {size_text(torch.cuda.get_device_properties(device).total_memory)})"


def _billions(parameters: int) -> str:
    if parameters < 1e9:
        return f"{parameters / 1e6:,.1f} million parameters"
    return f"{parameters / 1e9:,.2f} billion parameters"


def size_text(num_bytes: float) -> str:
    """Bytes with a unit: kB, MB or GB, of 1000 each."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 1e3:.1f} kB"
