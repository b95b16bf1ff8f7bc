"""What a case is: a kind of input, a damage drawn from a number, and a command that meets the damaged input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

OUT = "out"
"""The folder, in that of a case, into which commands are told to write."""

BEFORE = b"what stood there before\n"
"""What stands at a place that a command is told to write over."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to an input.

    Attributes:
        note: in words.
        possible: the input may now be another one that is as good as the first, so that other figures are right.
        mended: digests of files were made to agree with it, and are no figures.
        speaks: the input itself writes to standard output or error, so what stands there is not the command's alone.
        expected: the class that it must come to, where that is known: refused, or harmless.
        explained: figures of standard output that follow from the change, by their places in its JSON, which it must
            have where the input is not refused.
    """

    note: str
    possible: bool = False
    mended: bool = False
    speaks: bool = False
    expected: str = ""
    explained: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """The words behind ``simlab``, run in the folder of a case.

    Attributes:
        words: as a person would type them.
        outs: files and folders that it is asked for, all of them in `OUT`.
        overwrites: it takes the place of a file that is there; then one is put there before it runs.
        codes: exit codes of a finished command.
        figured: whether figures can be compared with those of the undamaged input.
        slow: it takes ten times as long as others, and is drawn less often.
        setting: one of `attack_run.SETTINGS`: where it runs, as a process of its own; empty: nothing is unusual.
    """

    words: tuple[str, ...]
    outs: tuple[str, ...] = ()
    overwrites: bool = False
    codes: tuple[int, ...] = (0,)
    figured: bool = True
    slow: bool = False
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of input.

    Attributes:
        name: as in ``make attack CASE=NAME:SEED``.
        inputs: names of the inputs that a case of it needs.
        damage: changes the inputs in a folder.
        commands: those that read it.
        draw: makes a command, where there is no list of them.
        share: how many cases, in comparison with other kinds.
        serves: whether the folder is served over HTTP meanwhile.
    """

    name: str
    inputs: tuple[str, ...]
    damage: Callable[[Path, Random], Damage]
    commands: Sequence[Command] = ()
    draw: Callable[[Random], Command] | None = None
    share: int = 4
    serves: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged input and one command: the same for the same kind and number, on every machine."""

    kind: str
    seed: int

    @property
    def name(self) -> str:
        """How the case is named to repeat it."""
        return f"{self.kind}:{self.seed}"

    def chance(self) -> Random:
        """The source of all that is drawn for it."""
        return Random(self.name)


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a case.

    Attributes:
        case: its name.
        outcome: one of `attack_judge.CLASSES`.
        why: in words, where the class does not say it all.
        note: what was done to the input.
        command: what was run.
        seconds: that the command took.
        peak_bytes: resident memory, at most.
        signature: what it has in common with others of one cause; empty for good ones.
        whole: class of the same case as a process of its own; empty where it was not run so.
        shared: class in the process that runs case after case, where one of its own gave another, the outcome.
    """

    case: str
    outcome: str
    why: str
    note: str
    command: str
    seconds: float
    peak_bytes: int
    signature: str = ""
    whole: str = ""
    shared: str = ""

    @property
    def kind(self) -> str:
        """The kind of input."""
        return self.case.partition(":")[0]


def parse_case(text: str) -> Case:
    """A case from its name.

    Raises:
        ValueError: it is not KIND:NUMBER.
    """
    kind, _, seed = text.rpartition(":")
    if not kind or not seed.isdecimal():
        raise ValueError(f"a case is named KIND:NUMBER, such as manifests:17; got {text!r}")
    return Case(kind, int(seed))


def plan(kinds: Sequence[Kind], num_cases: int, seed: int) -> list[Case]:
    """So many cases, those of each kind in the measure of its share, and at least one of each."""
    total = sum(kind.share for kind in kinds)
    numbers = [max(1, round(num_cases * kind.share / total)) if num_cases else 0 for kind in kinds]
    first = seed * 1_000_000
    return [
        Case(kind.name, first + number)
        for number in range(max(numbers, default=0))
        for kind, most in zip(kinds, numbers, strict=True)
        if number < most
    ]
