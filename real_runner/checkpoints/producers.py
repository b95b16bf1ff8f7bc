"""From the checkpoint of a head to the producer of a channel."""

from pathlib import Path

from simlab.real_runner.checkpoints.files import load_head
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.producer import Producer
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.targets.model import Target
from simlab.traces.format.manifest import ChannelInfo


def load_producer(place: Path, reach: HeadReach, drafter: DFlashDrafter, target: Target, digest: str) -> Producer:
    """The producer of a checkpoint, on the device of its target and in its dtype.

    Args:
        place: as `load_drafter` takes it.
        reach: how far its rows reach.
        drafter: which the head corrects.
        target: of both.
        digest: `checkpoint_digest` of the drafter's checkpoint.

    Raises:
        ModelError: files are missing or damaged, or the head belongs to another drafter.
    """
    head = load_head(place, drafter, digest, target.dtype, str(target.device))
    num_tokens = drafter.config.draft_vocab_size or drafter.config.vocab_size
    return TreeFlashProducer(head, drafter, target, reach.within(num_tokens))


def reach_of(info: ChannelInfo) -> HeadReach:
    """How far the rows of a recorded channel reach."""
    candidates = info.setting("candidates") if "candidates" in info.settings else None
    return HeadReach(info.setting("previous"), info.setting("top_k"), candidates)
