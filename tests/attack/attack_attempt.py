"""One case from its number to its class: the inputs are copied and damaged, a command meets them and is judged."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from random import Random
from typing import TypeVar

from attack_cases import ADDRESS, BAD, THERE_BEFORE, Damage, Finding, Kind
from attack_inputs import make_missing
from attack_judge import PERSON_CAN_FIX, codes_of, judge
from attack_run import Held, Main, Ran, apart
from attack_server import serving_folder

_SLOW = ("report", "calibration")
_SLOW_LEFT_OUT = 0.9
"""What takes ten times as long as others is drawn less often."""

_WITHOUT_FIGURES = ("record", "confirm", "dflash")
"""Words of commands whose outputs hold times."""


T = TypeVar("T")


class BrokenBaselineError(Exception):
    """A command that fails with the undamaged input: the campaign itself is at fault."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where cases find undamaged inputs and put damaged ones.

    Attributes:
        folder: of everything.
        main: the command line, or what stands in its place.
        whole_share: share of the cases that run as a program of their own, which begins with its own imports.
    """

    folder: Path
    main: Main
    whole_share: float = 0.0

    @property
    def inputs(self) -> Path:
        """The undamaged inputs, by name."""
        return self.folder / "inputs"

    def prepare(self, names: Iterable[str]) -> None:
        """Make inputs that are not there yet, all in one process, which loads what is compiled once."""
        self.inputs.mkdir(parents=True, exist_ok=True)
        if missing := sorted(name for name in set(names) if not (self.inputs / name).exists()):
            apart(_made, self.inputs, missing)

    def slot(self, name: str) -> Path:
        """An empty folder."""
        slot = self.folder / "cases" / name
        shutil.rmtree(slot, ignore_errors=True)
        slot.mkdir(parents=True)
        return slot

    def copied(self, slot: Path, names: Iterable[str]) -> Path:
        """A folder to run in, with copies of some inputs."""
        folder = slot / "run"
        (folder / "out").mkdir(parents=True)
        for name in names:
            source = self.inputs / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
        return folder

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """What was made under a name by this case or another one."""
        path = self.folder / "kept" / name.replace("/", "-")
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(ForkingPickler.dumps(make()))
            part.replace(path)
        kept: T = ForkingPickler.loads(path.read_bytes())
        return kept


def _made(folder: Path, names: Iterable[str]) -> None:
    """Make inputs, with what their commands say in a file beside them."""
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    make_missing(folder, names)


def draw(kind: Kind, chance: Random) -> list[str]:
    """The words of a case's command."""
    if callable(kind.commands):
        return kind.commands(chance)
    first, second = (shlex.split(chance.choice(kind.commands)) for _ in range(2))
    return second if set(_SLOW) & set(first[:2]) and chance.random() < _SLOW_LEFT_OUT else first


def damaged(kind: Kind, seed: int, place: Place, slot: Path) -> tuple[Path, Damage, list[str]]:
    """The folder of a case with its damaged input, the damage, and the words of its command."""
    chance = Random(f"{kind.name}:{seed}")
    words, folder = draw(kind, chance), place.copied(slot, kind.inputs)
    damage = kind.damage(folder, chance)
    _put_before(folder, words)
    return folder, damage, words


def _put_before(folder: Path, words: Iterable[str]) -> None:
    for word in words:
        if word.startswith(THERE_BEFORE):
            (folder / word).write_text("what stood there before\n")


def attempt(kind: Kind, seed: int, place: Place) -> Finding:
    """What comes of a case, in a process that has started no threads yet."""
    held, spare = Held(place.main), Held(place.main)
    slot, chance = place.slot(f"{kind.name}-{seed}"), Random(f"whole {kind.name}:{seed}")
    folder, damage, words = damaged(kind, seed, place, slot)
    with serving_folder(folder) if any(ADDRESS in word for word in words) else contextlib.nullcontext("") as address:
        setting = damage.setting or ("" if chance.random() < place.whole_share else None)
        ran = held.run(words, folder, setting, address)
        # Of a refusal in the usual place there are no figures.
        is_compared = ran.code != PERSON_CAN_FIX or damage.setting
        undamaged = undamaged_run(kind, words, place, spare) if is_compared else None
        spare.end(0)
        judged = judge(ran, damage, words[0], undamaged)
    typed = shlex.join(["simlab", *words]) + (f"   # {damage.setting}" if damage.setting else "")
    if judged.outcome not in BAD:
        shutil.rmtree(slot)
    return Finding(kind.name, seed, judged.outcome, judged.why, damage.note, typed, ran.seconds, ran.peak_bytes)


def undamaged_run(kind: Kind, words: list[str], place: Place, spare: Held) -> Ran | None:
    """What a command leaves with the undamaged input; None where it can be compared with nothing."""
    if callable(kind.commands) or set(words[:2]) & set(_WITHOUT_FIGURES):
        return None

    def make() -> Ran:
        slot = place.slot(f"undamaged-{os.getpid()}")
        folder = place.copied(slot, kind.inputs)
        _put_before(folder, words)
        with serving_folder(folder) as address:
            ran = spare.run(words, folder, None, address)
        if ran.code not in codes_of(words[0]):
            raise BrokenBaselineError(f"`simlab {shlex.join(words)}` of {kind.name}: {ran.code} {ran.err[-2000:]}")
        shutil.rmtree(slot)
        return ran

    return place.kept(shlex.join([*sorted(kind.inputs), *words])[:200], make)
