"""A made-up trace of an EAGLE-3 head: its chain as the draft set, and the pools of its trees as a channel."""

import json
from pathlib import Path

from signed_files import signed
from synthetic_traces import write_synthetic_trace

from simlab.channels import POOL
from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import synthetic_pools
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import PoolColumns
from simlab.traces.format.manifest_entries import ChannelInfo
from simlab.traces.reader import open_trace

WIDTH, STEPS = 3, 4
"""Nodes of a beam and children of each; passes behind that of the root."""


def write_head_trace(folder: Path, num_sequences: int = 48) -> Path:
    """Write it and give back its folder; two sequences share a prompt."""
    write_synthetic_trace(folder, num_sequences=num_sequences, length=24, depth=5)
    manifest = folder / "manifest.json"
    fields = json.loads(manifest.read_text(encoding="utf-8"))
    (name,) = fields["draft_sets"]
    fields["draft_sets"][name]["is_chain"] = True
    manifest.write_text(json.dumps(signed(fields)), encoding="utf-8")
    trace = open_trace(folder)
    head = trace.manifest.draft_sets[name].model
    settings = {"depth": STEPS + 1, "beam": WIDTH, "top_k": WIDTH, "steps": STEPS}

    def pools(text: RecordedSequence) -> PoolColumns:
        (recorded,) = trace.recorded(name, [text.index])  # a channel that stands for itself gets no rows
        vocab_size = trace.manifest.vocab_size
        return PoolColumns.unlabelled(synthetic_pools(recorded, STEPS + 1, WIDTH, vocab_size, WIDTH))

    add_channel(folder, "eagle3", ChannelInfo(POOL, head, None, None, settings, "float32"), pools)
    return folder
