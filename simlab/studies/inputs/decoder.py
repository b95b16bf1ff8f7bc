"""From token ids to text, where the tokenizer of a trace's target is on this machine."""

from collections.abc import Callable

from simlab.errors import SimlabError
from simlab.traces.format.manifest import ModelInfo

Decode = Callable[[list[int]], str]
"""From token ids to the text that they stand for."""


def decoder_of(target: ModelInfo) -> Decode | None:
    """The target's decoder, if its tokenizer is at hand; nothing is fetched."""
    try:
        # The extra simlab[models] may be absent; then ids are shown.
        from simlab.real_runner.targets.token_text import decoder_at_hand  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    try:
        return decoder_at_hand(target.name, target.revision)
    except SimlabError:
        return None
