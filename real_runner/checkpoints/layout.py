"""What simlab must know of one way to write a drafter's ``config.json``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import DFlashConfig

Fields: TypeAlias = Mapping[str, object]
"""The JSON object of a ``config.json``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout of checkpoints: how to recognise it, how to read it, and what to tell people of it.

    Attributes:
        name: such as ``z-lab``.
        field: a field of ``config.json`` that other models do not have; by it a drafter of this layout is known.
        recognises: whether a drafter's fields are of this layout, where no layout before it in the table claims them.
        reads: the configuration that the fields describe; raises `ModelError` where simlab cannot run that drafter.
        described: the layout of these fields in words, with its version where they name one.
        named_target: the target that the checkpoint was made for, as it names it; None where it does not.
        tap_offset: what must be added to its layer numbers, see `DFlashConfig`; None: it has no drafter.
        counting: how it numbers the target's layers, in words that follow the offset.
        prefix: what stands before the names of the drafter's tensors.
    """

    name: str
    field: str
    recognises: Callable[[Fields], bool]
    reads: Callable[[Fields], DFlashConfig]
    described: Callable[[Fields], str]
    named_target: Callable[[Fields], str | None] = lambda fields: None
    tap_offset: int | None = None
    counting: str = ""
    prefix: str = ""


def layout_alone(name: str, field: str, described: str, refusal: str) -> Layout:
    """The layout of a network that is no drafter: known by its field, and refused with a sentence as a drafter."""

    def refuse(fields: Fields) -> NoReturn:
        raise ModelError(refusal)

    return Layout(name, field, lambda fields: field in fields, refuse, lambda fields: described)
