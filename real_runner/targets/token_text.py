"""Token ids as text, and the bytes of each, without loading a model."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from simlab.errors import ModelError
from simlab.real_runner.targets import builtin


def load_decoder(name: str) -> Callable[[list[int]], str]:
    """From token ids to text, for the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: there is no tokenizer under that name.
    """
    folder = str(builtin.builtin_target_dir()) if name == builtin.NAME else name
    tokenizer = _tokenizer_in(folder, name, "", fetch=True)
    return lambda ids: str(tokenizer.decode(ids))


def decoder_at_hand(name: str, revision: str) -> Callable[[list[int]], str]:
    """From token ids to text, by a tokenizer that is on this machine already.

    Args:
        name: see `load_decoder`.
        revision: of a hub's model; else empty.
    """
    tokenizer = _tokenizer_at_hand(name, revision)
    return lambda ids: str(tokenizer.decode(ids))


def _tokenizer_at_hand(name: str, revision: str) -> PreTrainedTokenizerBase:
    if name != builtin.NAME:
        return _tokenizer_in(name, name, revision, fetch=False)
    folder = builtin.target_at_hand()
    if folder is None:
        raise ModelError(f"the target {name} was not fetched yet")
    return _tokenizer_in(str(folder), name, "", fetch=False)


def bytes_of_tokens(name: str, revision: str, ids: Iterable[int]) -> Mapping[int, bytes]:
    """The bytes of each token, by a tokenizer that is on this machine already; arguments as of `decoder_at_hand`."""
    # transformers' own hints know less of its tokenizers than is there.
    tokenizer: Any = _tokenizer_at_hand(name, revision)
    added: Mapping[str, int] = tokenizer.get_added_vocab()
    own = {sign: byte for byte, sign in enumerate(_SIGNS)}
    as_bytes = {}
    for token_id in ids:
        token = str(tokenizer.convert_ids_to_tokens(token_id))
        if token not in added and not own.keys() >= set(token):
            raise ModelError(f"the tokens of {name!r} are not made of bytes; their texts cannot be stored one by one")
        as_bytes[token_id] = token.encode() if token in added else bytes(own[sign] for sign in token)
    return as_bytes


def _signs() -> str:
    """The sign that stands for each byte in a vocabulary of bytes (Radford et al., GPT-2, 2019).

    Printable ones stand for themselves, the others for the signs from 256 on.
    """
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in shown else next(others)) for byte in range(256))


_SIGNS = _signs()


def _tokenizer_in(folder: str, name: str, revision: str, *, fetch: bool) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(
            folder, revision=revision or "main", local_files_only=not fetch, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"the tokenizer of {name!r} could not be loaded ({reason})") from error
