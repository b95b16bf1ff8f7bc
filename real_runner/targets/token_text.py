"""Token ids as text, without loading a model."""

from collections.abc import Callable

from transformers import AutoTokenizer

from simlab.errors import ModelError
from simlab.real_runner.targets import builtin


def load_decoder(name: str) -> Callable[[list[int]], str]:
    """From token ids to text, for the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: there is no tokenizer under that name.
    """
    return _decoder_in(str(builtin.builtin_target_dir()) if name == builtin.NAME else name, name, "", fetch=True)


def decoder_at_hand(name: str, revision: str) -> Callable[[list[int]], str]:
    """From token ids to text, by a tokenizer that is on this machine already.

    Args:
        name: see `load_decoder`.
        revision: of a hub's model; else empty.

    Raises:
        ModelError: the tokenizer is not on this machine.
    """
    if name != builtin.NAME:
        return _decoder_in(name, name, revision, fetch=False)
    folder = builtin.target_at_hand()
    if folder is None:
        raise ModelError(f"the target {name} was not fetched yet")
    return _decoder_in(str(folder), name, "", fetch=False)


def _decoder_in(place: str, name: str, revision: str, *, fetch: bool) -> Callable[[list[int]], str]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            place, revision=revision or "main", local_files_only=not fetch, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"the tokenizer of {name!r} could not be loaded ({reason})") from error
    return lambda ids: str(tokenizer.decode(ids))
