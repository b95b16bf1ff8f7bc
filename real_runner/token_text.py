"""Token ids as text, without loading a model."""

from collections.abc import Callable

from transformers import AutoTokenizer

from simlab.errors import ModelError
from simlab.real_runner import builtin


def load_decoder(name: str) -> Callable[[list[int]], str]:
    """From token ids to text, for the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: there is no tokenizer under that name.
    """
    place = str(builtin.builtin_target_dir()) if name == builtin.NAME else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"the tokenizer of {name!r} could not be loaded ({reason})") from error
    return lambda ids: str(tokenizer.decode(ids))
