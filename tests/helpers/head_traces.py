"""Traces with the made-up channel of a first-order head."""

from pathlib import Path

from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import synthetic_transitions
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import TransitionColumns
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, ModelInfo
from simlab.traces.reader import open_trace


def with_head(folder: Path, tied: bool) -> Path:
    """A trace to which a channel is added; of the other kind it says something else."""
    trace = open_trace(folder)
    name = trace.draft_name()
    settings = {"depth": trace.manifest.draft_sets[name].depth, "previous": 4, "top_k": 5, "order": BASE_RANK}
    vocab_size = trace.manifest.vocab_size

    def columns(recorded: RecordedSequence) -> TransitionColumns:
        return TransitionColumns(*synthetic_transitions(recorded, 4, 5, vocab_size, tied))

    producer = ModelInfo("made-up", "", f"tied {tied}")
    info = ChannelInfo("transitions", producer, name, trace.draft_ids[name], settings, "float32")
    add_channel(folder, "treeflash", info, columns)
    return folder
