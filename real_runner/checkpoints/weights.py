"""Whether the tensors of a checkpoint are those that its configuration asks for, so that it loads and drafts.

The loader and `simlab inspect` both ask here, before a weight is loaded; nothing here needs torch.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shown
from typing import NoReturn

import numpy as np

from simlab.arrays import Longs
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import (
    EMBEDDING,
    HEAD,
    MASK,
    OFFSETS,
    check_names,
)
from simlab.real_runner.drafters.config import DFlashConfig, MadeForTarget
from simlab.real_runner.drafters.vocabulary import vocabulary_of
from simlab.untrusted.json_text import open_file, parse_json

# Tensors as safetensors files list them: names, dtypes, shapes, and where their bytes lie. Nothing here needs torch.
#
# A header is read as strictly as the package safetensors reads it, or more so: what is accepted here loads.


_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000
_CHUNK_BYTES = 1 << 24
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}

ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
"""Bytes of a number of each dtype, by the names of safetensors; those of less than a byte are not read."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file.

    Attributes:
        name: of the tensor.
        dtype: as safetensors names it, one of `ITEM_BYTES`.
        shape: its sides.
        file: in which it lies.
        start: the place of its first byte in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int

    @property
    def num_bytes(self) -> int:
        """The bytes that its numbers take in the file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def chunks(self) -> Iterator[bytes]:
        """The bytes of its numbers in order, a few million at a time; no number is cut in two."""
        left = self.num_bytes
        try:
            with open_file(self.file) as file:
                file.seek(self.start)
                while left > 0:
                    chunk = file.read(min(left, _CHUNK_BYTES))
                    if len(chunk) < min(left, _CHUNK_BYTES):
                        _refuse(self.file, "it is shorter than its header says")
                    left -= len(chunk)
                    yield chunk
        except OSError as error:
            _refuse(self.file, error.strerror or str(error))


def read_tensors(path: Path) -> list[StoredTensor]:
    """The tensors that a safetensors file lists, in the order of their bytes.

    Raises:
        ModelError: there is no such file, its header cannot be read, or it is shorter or longer than that says.
    """
    try:
        with open_file(path) as file:
            size = path.stat().st_size
            first = file.read(_LENGTH.size)
            length = _LENGTH.unpack(first)[0] if len(first) == _LENGTH.size else _LONGEST_HEADER
            header = file.read(length) if length < min(size, _LONGEST_HEADER) else b""
    except (FileNotFoundError, IsADirectoryError) as error:
        raise lacking(path) from error
    except OSError as error:
        _refuse(path, error.strerror or str(error))
    try:
        tensors = list(_tensors(header, path, _LENGTH.size + length))
    except ValueError as error:
        _refuse(path, f"in its header {error}")
    expected = _LENGTH.size + length + sum(tensor.num_bytes for tensor in tensors)
    if size != expected:
        _refuse(path, f"it has {size} bytes and its header asks for {expected}")
    return tensors


def lacking(path: Path) -> ModelError:
    """The sentence for a file of a checkpoint that is not there."""
    pickled = min(path.parent.glob("*.bin"), default=None)
    if pickled is not None and path.suffix == ".safetensors":
        return ModelError(
            f"the drafter folder {path.parent} has its weights in {pickled.name} and no {path.name}; simlab reads no "
            "pickles, which can run code: save them with safetensors, or choose a release that has them"
        )
    return ModelError(
        f"the drafter folder {path.parent} has no {path.name}; expected config.json and model.safetensors"
    )


def _refuse(path: Path, why: str) -> NoReturn:
    raise ModelError(f"{path} cannot be read ({why}), so it is damaged; fetch or train it again")


def _tensors(header: bytes, path: Path, start: int) -> Iterator[StoredTensor]:
    """The tensors of a header; a ValueError says where it is not one of safetensors."""
    entries = parse_json(header)
    if not isinstance(entries, dict) or not header.startswith(b"{"):
        raise ValueError("no { comes first")
    _check_metadata(entries.pop(_METADATA, {}))
    tensors = [_tensor(name, entry, path, start) for name, entry in entries.items()]
    for tensor, end in sorted(tensors, key=lambda pair: (pair[0].start, pair[1])):
        if tensor.start != start or tensor.start + tensor.num_bytes != end:
            raise ValueError(f"the bytes of {shown(tensor.name)} are not those of its shape, or lie apart")
        start = end
        yield tensor


def _check_metadata(metadata: object) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"{_METADATA} are no texts by name")


def _tensor(name: str, entry: object, path: Path, first: int) -> tuple[StoredTensor, int]:
    """A tensor, and where its bytes end."""
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise ValueError(f"{shown(name)} has not dtype, shape and data_offsets and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"{shown(name)} is of the dtype {shown(dtype)}, which simlab does not know")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{shown(name)} has no shape, or not two data_offsets")
    return StoredTensor(name, dtype, tuple(shape), path, first + offsets[0]), first + offsets[1]


def _are_counts(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


LARGEST = 65504.0
"""No weight is larger: float16 holds none, and what is far above it drafts no numbers."""

# As whole numbers, floating-point numbers without their signs are in the same order, and what is none comes last.
_AS_WHOLE = {"F16": ("<u2", "<f2"), "F32": ("<u4", "<f4"), "F64": ("<u8", "<f8")}
_BFLOAT16_LARGEST = int(np.array([LARGEST], "<f4").view("<u4")[0]) >> 16
_WHOLE_NUMBERS = {
    "BOOL": "u1",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "I64": "<i8",
}


def check_weights(config: DFlashConfig, tensors: Mapping[str, StoredTensor], location: object) -> None:
    """Refuse tensors with which a drafter of this configuration cannot be built, or drafts no numbers.

    Args:
        config: of the checkpoint.
        tensors: by name.
        location: where it lies, for the message.
    """
    check_names(config, tensors, location)
    size = config.draft_vocab_size or config.vocab_size
    shapes = dict(config.shapes())
    shapes |= {EMBEDDING: (config.vocab_size, config.hidden_size), HEAD: (size, config.hidden_size)}
    check_numbers(shapes, tensors, location)
    draft_ids(config, tensors, location)


def check_own(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, StoredTensor], what: str, location: object
) -> None:
    """Refuse other tensors than these, or what is no weight."""
    if wrong := sorted(set(shapes) ^ set(tensors)):
        differs = "lacks" if set(shapes) - set(tensors) else "holds, beside its own tensors,"
        raise ModelError(f"the {what} {differs} {', '.join(wrong[:3])}; fetch or train it again")
    check_numbers(shapes, tensors, location)


def check_numbers(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, StoredTensor], location: object) -> None:
    """Refuse tensors of other shapes than these, or what is no weight."""
    for name, shape in shapes.items():
        if name in tensors:
            _check_shape(tensors[name], shape, location)
            _check_values(tensors[name], location)


def draft_ids(
    config: MadeForTarget, tensors: Mapping[str, StoredTensor], location: object
) -> tuple[Longs, bool] | None:
    """The target's id of each token of the drafter, int64 ``[V_d]``, and whether these rise; None: it has no own ones.

    Args:
        config: of the checkpoint.
        tensors: by name.
        location: where it lies, for the message.
    """
    size = config.draft_vocab_size or config.vocab_size
    offsets, mask = (
        _whole_numbers(tensors[name], shape, location) if name in tensors else None
        for name, shape in ((OFFSETS, (size,)), (MASK, (config.vocab_size,)))
    )
    if config.draft_vocab_size is not None:
        return vocabulary_of(offsets, None if mask is None else mask != 0, size, config.vocab_size)
    for name, differs in (
        (OFFSETS, offsets is not None and offsets.any()),
        (MASK, mask is not None and not mask.all()),
    ):
        if differs:
            raise ModelError(
                f"the drafter in {location} holds, beside those of DFlash, a {name} of fewer tokens than the target "
                "has, and its config.json names no draft_vocab_size; fetch it again"
            )
    return None


def _check_shape(tensor: StoredTensor, shape: tuple[int, ...], location: object) -> None:
    if tensor.shape != shape:
        raise ModelError(
            f"{tensor.name} in {location} is {list(tensor.shape)}; its config.json makes it {list(shape)}, so they do "
            "not fit; fetch the checkpoint again"
        )


def _check_values(tensor: StoredTensor, location: object) -> None:
    if tensor.dtype not in ("BF16", *_AS_WHOLE):
        raise ModelError(
            f"{tensor.name} in {location} is of the dtype {tensor.dtype}; simlab runs weights of F32, BF16, F16 or F64"
        )
    if tensor.dtype == "BF16":
        kind, largest = "<u2", _BFLOAT16_LARGEST
    else:
        kind, floating = _AS_WHOLE[tensor.dtype]
        largest = int(np.array([LARGEST], floating).view(kind)[0])
    unsigned = np.array(np.iinfo(kind).max >> 1, kind)
    for chunk in tensor.chunks():
        if int((np.frombuffer(chunk, kind) & unsigned).max()) > largest:
            raise ModelError(
                f"{tensor.name} in {location} holds a weight that is no number, or is above {LARGEST:,.0f}, so it is "
                "damaged; fetch or train it again"
            )


def _whole_numbers(tensor: StoredTensor, shape: tuple[int, ...], location: object) -> Longs:
    _check_shape(tensor, shape, location)
    if tensor.dtype not in _WHOLE_NUMBERS:
        raise ModelError(f"{tensor.name} in {location} is of the dtype {tensor.dtype}, where whole numbers belong")
    return np.frombuffer(b"".join(tensor.chunks()), _WHOLE_NUMBERS[tensor.dtype]).astype(np.int64)
