"""What a case is: a kind of input, a damage drawn from a number, and a command that meets the damaged input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

REFUSED, HARMLESS, OTHER = "refused", "harmless", "other input"
WRONG, UNTIDY, TRACEBACK, MEMORY, HANG, LOST = "wrong figure", "untidy", "traceback", "memory", "hang", "lost"
GOOD = (REFUSED, HARMLESS, OTHER)
BAD = (WRONG, UNTIDY, TRACEBACK, MEMORY, HANG, LOST)
CLASSES = (*GOOD, *BAD)

VOUCHED = (REFUSED, HARMLESS)
"""What may come of a damage to what a digest covers, or to what cannot be so."""

THERE_BEFORE = "out/old"
"""How the names of outputs begin that a command takes the place of: there it finds a file of somebody else's."""

ADDRESS = "ADDRESS"
"""Stands, in the words of a command, for a server of the folder in which it runs."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to an input.

    Attributes:
        note: in words.
        allowed: the classes that it may come to; all good ones where the input may now be another one that is as good
            as the first, so that other figures are right.
        mended: digests of files were made to agree with it, and are no figures.
        speaks: the input itself writes to standard output or error, so what stands there is not the command's alone.
        explained: figures of standard output that follow from the change, by their places in its JSON, which it must
            have where the input is not refused.
        setting: one of `attack_run.SETTINGS`, in which the command is run; empty: nothing is unusual.
    """

    note: str
    allowed: Sequence[str] = VOUCHED
    mended: bool = False
    speaks: bool = False
    explained: Mapping[str, object] | None = None
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of input.

    Attributes:
        name: as in ``make attack CASE=NAME:SEED``.
        inputs: names of the inputs that a case of it needs.
        damage: changes the inputs in a folder.
        commands: what is typed behind ``simlab`` in the folder of a case, one of these; or what draws it.
        share: how many cases, in comparison with other kinds.
    """

    name: str
    inputs: tuple[str, ...]
    damage: Callable[[Path, Random], Damage]
    commands: Sequence[str] | Callable[[Random], list[str]]
    share: int = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a case.

    Attributes:
        kind: the kind of input.
        seed: the number that the rest was drawn from.
        outcome: one of `CLASSES`.
        why: in words, where the class does not say it all.
        note: what was done to the input.
        command: what was run.
        seconds: that the command took.
        peak_bytes: resident memory, at most.
        kills: how often a command was killed.
    """

    kind: str
    seed: int
    outcome: str
    why: str
    note: str
    command: str
    seconds: float = 0.0
    peak_bytes: int = 0
    kills: int = 0
