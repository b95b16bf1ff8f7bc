"""The process that runs case after case, with all imports behind it; see `attack_watch` for who watches it."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from attack_cases import Case, Command, Damage, Finding, Kind, parse_case
from attack_judge import BAD, Judged, Ran, judge
from attack_run import SETTINGS, Main, State, is_spoiled, own_streams, run_here, run_whole
from attack_server import serving_folder

_SLOW_LEFT_OUT = 0.9

BEGIN, END, BROKEN = "begin", "end", "broken"


class BrokenBaselineError(Exception):
    """A command that fails with the undamaged input: the campaign itself is at fault."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker finds undamaged inputs and puts damaged ones.

    Attributes:
        inputs: the undamaged ones, by name.
        baselines: figures of commands with undamaged inputs, a file each, for all workers.
        slot: this worker's own folder.
    """

    inputs: Path
    baselines: Path
    slot: Path

    def fresh(self, names: tuple[str, ...]) -> Path:
        """A new folder with a copy of some inputs."""
        folder = self.slot / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in names:
            source = self.inputs / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
        return folder


@dataclass(frozen=True, slots=True)
class Ready:
    """A case with its damaged input in a folder."""

    folder: Path
    damage: Damage
    command: Command

    @property
    def typed(self) -> str:
        """The command, in one line."""
        return " ".join(["simlab", *self.command.words])


def made_ready(case: Case, kind: Kind, place: Place) -> Ready:
    """Put the damaged input of a case into a folder and draw its command."""
    folder, chance = place.fresh(kind.inputs), case.chance()
    command = _drawn_command(kind, chance)
    return Ready(folder, kind.damage(folder, chance), command)


def _drawn_command(kind: Kind, chance: Random) -> Command:
    if kind.draw is not None:
        return kind.draw(chance)
    first, second = chance.choice(kind.commands), chance.choice(kind.commands)
    return second if first.slow and chance.random() < _SLOW_LEFT_OUT else first


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs cases of some kinds in a place.

    Attributes:
        main: the command line, or what stands in its place.
        starts: the same as a process of its own; empty: ``python -m simlab``.
        repeats: a bad case is run again as a process of its own, and belongs to the class that this gives.
    """

    kinds: Mapping[str, Kind]
    place: Place
    main: Main
    starts: tuple[str, ...] = ()
    repeats: bool = False

    def serve(self, connection: Connection) -> None:
        """Answer requests for cases until nobody asks any more; each is a name, and whether to run it whole too."""
        os.setsid()
        first = own_streams()
        is_served = any(kind.serves for kind in self.kinds.values())
        with self.serving_folder() if is_served else contextlib.nullcontext("") as address:
            self._answer(connection, first, address)

    def _answer(self, connection: Connection, first: State, address: str) -> None:
        while (asked := connection.recv()) is not None:
            name, whole = asked
            case = parse_case(name)
            try:
                undamaged = self._undamaged(case, address)
                ready = made_ready(case, self.kinds[case.kind], self.place)
            except BrokenBaselineError as error:
                connection.send((BROKEN, str(error)))
                continue
            connection.send((BEGIN, ready.damage.note, ready.typed))
            if ready.command.setting:
                found = self._whole(case, undamaged, address)
                connection.send((END, found, is_spoiled(first)))
                continue
            ran = run_here(self.main, ready.command, ready.folder, address)
            found = finding(case, ready, ran, judge(ran, ready.damage, ready.command, undamaged))
            if self.repeats and found.outcome in BAD:
                again = self._whole(case, undamaged, address)
                found = found if again.outcome in BAD else replace(again, shared=found.outcome, why=found.why)
            elif whole:
                found = replace(found, whole=self._whole(case, undamaged, address).outcome)
            connection.send((END, found, is_spoiled(first)))

    def _whole(self, case: Case, undamaged: Mapping[str, str] | None, address: str) -> Finding:
        ready = made_ready(case, self.kinds[case.kind], self.place)
        ran = run_whole(ready.command, ready.folder, address, self.starts)
        return finding(case, ready, ran, judge(ran, ready.damage, ready.command, undamaged))

    def _undamaged(self, case: Case, address: str) -> Mapping[str, str] | None:
        """Figures of a case's command with the undamaged input, from those kept or made now."""
        kind = self.kinds[case.kind]
        command = _drawn_command(kind, case.chance())
        if not command.figured:
            return None
        key = hashlib.sha256(json.dumps([sorted(kind.inputs), command.words]).encode()).hexdigest()[:16]
        path = self.place.baselines / f"{key}.json"
        if not path.is_file():
            ran = run_here(self.main, command, self.place.fresh(kind.inputs), address)
            if ran.code not in command.codes:
                raise BrokenBaselineError(f"`simlab {' '.join(command.words)}` of {kind.name}: {ran.err[-2000:]}")
            part = path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(dict(ran.figures)))
            part.replace(path)
        found: dict[str, str] = json.loads(path.read_text())
        if command.setting and SETTINGS[command.setting].is_silent:
            found.pop("stdout")
        return found

    def serving_folder(self) -> contextlib.AbstractContextManager[str]:
        """Serve the folder of cases over HTTP; gives the address."""
        return serving_folder(self.place.slot / "run")


def finding(case: Case, ready: Ready, ran: Ran, judged: Judged) -> Finding:
    """What came of a case."""
    return Finding(
        case.name,
        judged.outcome,
        judged.why,
        ready.damage.note,
        ready.typed,
        ran.seconds,
        ran.peak_bytes,
        f"{judged.outcome}: {judged.signature}" if judged.signature else "",
    )
