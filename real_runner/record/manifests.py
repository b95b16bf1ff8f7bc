"""What a recording says about itself."""

import hashlib
import json
import platform
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from simlab.ids import content_digest, versions_of
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.models import Models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import Source, Sources, given_turns, render_turn, shared_kwargs
from simlab.real_runner.targets.dumped_states import DumpedStates
from simlab.real_runner.targets.hub_files import repository_of
from simlab.traces.format.documents import json_fields
from simlab.traces.format.files import file_sha256
from simlab.traces.format.manifest import DumpedInfo, Manifest
from simlab.traces.format.manifest_entries import DraftSet, ModelInfo

_LIBRARIES = ("simlab", "torch", "transformers", "tokenizers", "numpy", "numba")


def manifest_of(options: RecordOptions, models: Models, sources: Sources) -> Manifest:
    """Everything about a recording that is known before it starts."""
    target, earlier = models.target, sources.retold_from
    kwargs = earlier.chat_template_kwargs if earlier else shared_kwargs(sources, options.template_kwargs)
    return Manifest(
        target=target.info,
        vocab_size=target.vocab_size,
        tokenizer_digest=tokenizer_digest(target.tokenizer),
        chat_template_digest=_digest(str(target.tokenizer.chat_template or "")),
        prompts_digest=earlier.prompts_digest if earlier else _prompts_digest(options, models, sources),
        chat_template_kwargs=kwargs,
        sampling=earlier.sampling if earlier else options.sampling,
        stop_token_ids=target.stop_token_ids,
        max_new_tokens=earlier.max_new_tokens if earlier else options.longest,
        gt_mode=earlier.gt_mode if earlier else "generated" if options.prompts is not None else "given",
        dtype=options.model_dtype,
        attention=str(target.model.config._attn_implementation) if models.dumped is None else "not run here",
        batch_size=options.batch_size,
        device=f"{device_name(options.first_device)} {f'({target.placement})' if target.placement else ''}".strip(),
        versions=versions_of(_LIBRARIES),
        draft_sets={models.drafter.config.draft_name: draft_set_of(options.draft_name, models, options.kept)},
        hidden_states=None if models.dumped is None else _dumped_info(options, models, models.dumped, sources),
    )


def _dumped_info(options: RecordOptions, models: Models, dumped: DumpedStates, sources: Sources) -> DumpedInfo:
    """The layers that were dumped, and a digest of their files, so that others cannot take their place unseen."""
    given = [item for item in sources.items if not isinstance(item, PromptRecord)]
    turns = [turn for item in given for turn in given_turns(item, models.target, options.template_kwargs)]
    paths = [
        dumped.file_of(np.concatenate([turn.prompt.token_ids, turn.text]), turn.prompt.prompt_id) for turn in turns
    ]
    return DumpedInfo(dumped.layers, dumped.dtype, content_digest([file_sha256(path) for path in paths]))


def draft_set_of(draft: str, models: Models, kept: KeptCandidates) -> DraftSet:
    """What the manifest says of a drafter.

    Args:
        draft: the name under which it was loaded.
        models: the drafter among them.
        kept: how many candidates are.
    """
    config = models.drafter.config
    return DraftSet(
        model=ModelInfo(repository_of(draft), models.draft_revision, checkpoint_digest(models.draft_folder)),
        block_size=config.block_size,
        depth=config.depth,
        min_width=kept.min_width,
        exact_budget=kept.exact_budget,
        vocab_size=config.vocab_size,
        mask_token_id=config.mask_token_id,
        draft_vocab_size=config.draft_vocab_size,
        tap_offset=config.tap_offset,
        is_chain=config.is_chain,
        root_seen=config.root_seen,
        noise="" if config.noise is None else config.noise.text(),
    )


def _prompts_digest(options: RecordOptions, models: Models, sources: Sources) -> str:
    contents = [_asked(options, models, source) for source in sources.items]
    return _digest(json.dumps(contents, separators=(",", ":"), ensure_ascii=False))


def _asked(options: RecordOptions, models: Models, source: Source) -> list[object]:
    """The rendered first prompt and what follows it, or the given text."""
    if isinstance(source, PromptRecord):
        ids = render_turn(source, [], models.target, options.template_kwargs).token_ids.tolist()
        return [source.prompt_id, ids, list(source.later_turns)]
    turns = given_turns(source, models.target, options.template_kwargs)
    return [[turn.prompt.prompt_id, turn.prompt.token_ids.tolist(), turn.text.tolist()] for turn in turns]


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """What a tokenizer's ids mean, as one digest of its tokens, merges and added tokens.

    The file that transformers writes is another one from version to version.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    model = (
        json_fields(backend.to_str(), "the tokenizer").inner("model").values if isinstance(backend, Tokenizer) else {}
    )
    added = [
        [token_id, token.content, token.special] for token_id, token in sorted(tokenizer.added_tokens_decoder.items())
    ]
    return content_digest([tokenizer.get_vocab(), model.get("merges"), added])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def device_name(device: str) -> str:
    """The device as a person would name it: ``cpu``, or the GPU's own name."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def recording_info(seconds: float, positions: int, skipped_shards: int, devices: Sequence[str]) -> dict[str, object]:
    """What is true of one run and outside every id: time, host, speed.

    Args:
        seconds: of this run, loading the models of the first device left out.
        positions: recorded in this run, on all devices.
        skipped_shards: done before this run.
        devices: one process each.
    """
    return {
        "seconds": round(seconds, 3),
        "positions": positions,
        "positions_per_s": round(positions / seconds, 2) if seconds > 0 else 0.0,
        "shards_from_an_earlier_run": skipped_shards,
        "devices": list(devices),
        "machine": platform.processor() or platform.machine(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
    }
