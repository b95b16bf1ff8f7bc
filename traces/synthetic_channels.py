"""Made-up channels of a made-up trace, in the real format; see `simlab.traces.synthetic`."""

from dataclasses import dataclass
from pathlib import Path

from simlab.channels import BRANCHES, FEATURES, POOL, TRANSITIONS
from simlab.recorded import RecordedSequence
from simlab.testing.made_up_channels import (
    made_up_branches,
    made_up_features,
    made_up_pools,
    made_up_transitions,
)
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import BranchColumns, FeatureColumns, PoolColumns, TransitionColumns
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, ModelInfo, branch_lengths
from simlab.traces.reader import open_trace


@dataclass(frozen=True, slots=True)
class SyntheticChannels:
    """What is made up beside the draft set: ``transitions``, ``pool``, of a beam, ``branches`` and ``features``.

    Attributes:
        previous: tokens of each depth that transitions stand below.
        top_k: candidates of a row, whether of transitions or branches, and children of a node.
        beam: nodes of each depth that are expanded.
        routes: for which the features are.
    """

    previous: int = 4
    top_k: int = 4
    beam: int = 3
    routes: str = "ddtree:budget=16|chain"


DEFAULT_CHANNELS = SyntheticChannels()


def add_synthetic_channels(folder: Path, channels: SyntheticChannels = DEFAULT_CHANNELS) -> None:
    """Add made-up channels to a trace with one draft set; they sharpen its candidates by the tokens before them."""
    trace = open_trace(folder)
    draft, vocab_size = trace.draft_name(), trace.manifest.vocab_size
    depth, producer = trace.manifest.draft_sets[draft].depth, ModelInfo("synthetic", "", "synthetic-channels")

    def transitions(recorded: RecordedSequence) -> TransitionColumns:
        return TransitionColumns(*made_up_transitions(recorded, channels.previous, channels.top_k, vocab_size))

    def pool(recorded: RecordedSequence) -> PoolColumns:
        return PoolColumns.unlabelled(made_up_pools(recorded, depth, channels.top_k, vocab_size, channels.beam))

    def branches(recorded: RecordedSequence) -> BranchColumns:
        return BranchColumns(*made_up_branches(recorded, depth, channels.top_k, vocab_size))

    def features(recorded: RecordedSequence) -> FeatureColumns:
        return FeatureColumns(made_up_features(recorded, len(channels.routes.split("|"))))

    of_rows = {"depth": depth, "previous": channels.previous, "top_k": channels.top_k, "order": BASE_RANK}
    of_nodes = {"depth": depth, "top_k": channels.top_k, "beam": channels.beam}
    of_branches = {"depth": depth, "branches": len(branch_lengths(depth, depth)), "top_k": channels.top_k}
    of_routes = {"size": len(channels.routes.split("|")), "routes": channels.routes}
    base = (draft, trace.draft_ids[draft])
    add_channel(folder, TRANSITIONS, ChannelInfo(TRANSITIONS, producer, *base, of_rows, "float32"), transitions)
    add_channel(folder, POOL, ChannelInfo(POOL, producer, *base, of_nodes, "float32"), pool)
    add_channel(folder, BRANCHES, ChannelInfo(BRANCHES, producer, *base, of_branches, "float32"), branches)
    add_channel(folder, FEATURES, ChannelInfo(FEATURES, producer, None, None, of_routes, "float32"), features)
