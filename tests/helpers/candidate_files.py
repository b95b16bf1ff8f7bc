"""Files of candidates as an engine would write them, made of a trace."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simlab.traces.reader import open_trace

Line = dict[str, Any]


def header_of(trace: Path, top_k: int, changes: Mapping[str, object] | None = None) -> Line:
    """The first line of a file with the candidates of a trace."""
    manifest = open_trace(trace).manifest
    (kept,) = manifest.draft_sets.values()
    return {
        "format": "simlab-candidates",
        "format_version": 1,
        "engine": "made-up engine 1.0",
        "target": "made-up target",
        "drafter": "made-up drafter",
        "vocab_size": manifest.vocab_size,
        "depth": kept.depth,
        "top_k": top_k,
        "block": kept.block_size,
        "roots": "all",
        "normalised": "vocabulary",
        "behind": "root",
        "root_seen": True,
        "temperature": 0,
        "sampling": None,
        "noise": None,
        **(changes or {}),
    }


def candidate_lines(trace: Path, top_k: int, changes: Mapping[str, object] | None = None) -> list[Line]:
    """The lines of a file with the first ``top_k`` candidates of a trace at each root, and what is outside."""
    lines = [header_of(trace, top_k, changes)]
    found = open_trace(trace)
    (name,) = found.manifest.draft_sets
    for record in found.records([name]):
        prompt = record.prompt
        about = {"text": record.index, "dataset": prompt.dataset, "prompt_ids": prompt.token_ids.tolist()}
        lines.append({**about, "token_ids": record.text.tolist(), "stop": record.stop_reason})
        for root, row in enumerate(record.drafts[name].rows().rows()):
            parts = [
                slice(low, min(low + top_k, high)) for low, high in zip(row.offsets, row.offsets[1:], strict=False)
            ]
            log_probs = [row.log_probs[part].astype(float) for part in parts]
            lines.append(
                {
                    "text": record.index,
                    "root": root,
                    "ids": [row.ids[part].tolist() for part in parts],
                    "log_probs": [part.tolist() for part in log_probs],
                    "outside": [max(0.0, 1 - float(np.exp(part).sum())) for part in log_probs],
                }
            )
    return lines


def write_lines(path: Path, lines: list[Line]) -> Path:
    """Write a file of such lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
