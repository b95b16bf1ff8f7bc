"""From token ids to text: by the trace itself, or by the tokenizer of its target where that is on this machine."""

from collections.abc import Callable

from simlab.errors import SimlabError
from simlab.traces.format.token_texts import text_of_tokens
from simlab.traces.reader import Trace

Decode = Callable[[list[int]], str]
"""From token ids to the text that they stand for."""


def decoder_of(trace: Trace) -> Decode | None:
    """What turns the trace's tokens into text, if that is at hand; nothing is fetched."""
    texts = trace.token_texts()
    if texts is not None:
        return lambda ids: text_of_tokens(texts, ids)
    try:
        # The extra simlab[models] may be absent; then ids are shown.
        from simlab.real_runner.targets.token_text import decoder_at_hand  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    try:
        return decoder_at_hand(trace.manifest.target.name, trace.manifest.target.revision)
    except SimlabError:
        return None
