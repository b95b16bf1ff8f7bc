"""``make attack``: a campaign of damaged inputs; each must be refused in one sentence, or change no figure.

The same seed draws the same cases everywhere. See docs/development/index.md.
"""

import argparse
import gc
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import kinds_of_commands
import kinds_of_engines
import kinds_of_files
import kinds_of_policies
from attack_attempt import Place, attempt, undamaged_run
from attack_cases import BAD, CLASSES, Finding, Kind
from attack_kills import KILLED, NEEDS, RACED, attempt_kill
from attack_run import Held, apart

from simlab.cli.main import COMMANDS, main

_MODULES = (kinds_of_files, kinds_of_policies, kinds_of_commands, kinds_of_engines)
KINDS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
"""All kinds of input, by name."""

_SAY_EVERY_S = 5.0

Case = tuple[str, int]
"""The name of a kind, or of a trial with kills, and the number that all else is drawn from."""


def plan(num_cases: int, seed: int) -> list[Case]:
    """So many cases, those of each kind in the measure of its share, and at least one of each."""
    total = sum(kind.share for kind in KINDS.values())
    numbers = {kind.name: max(1, round(num_cases * kind.share / total)) for kind in KINDS.values() if num_cases}
    most = max(numbers.values(), default=0)
    return [(name, seed * 1_000_000 + at) for at in range(most) for name, number in numbers.items() if at < number]


def _come_of(case: Case, place: Place) -> Finding:
    """What comes of a case, in a process of its own."""
    name, seed = case
    if name in (KILLED, RACED):
        return apart(attempt_kill, name, seed, place)
    return apart(attempt, KINDS[name], seed, place)


def run(cases: Sequence[Case], place: Place, jobs: int = 1) -> Iterator[Finding]:
    """What comes of some cases, as it comes; bad ones and how many are done are said meanwhile."""
    for command in COMMANDS.values():
        import_module(command.run.partition(":")[0])
    kinds = {name for name, _ in cases}
    needed = {name for kind in kinds & KINDS.keys() for name in KINDS[kind].inputs}
    gc.freeze()  # what is here now is not gone through, and so not copied, in every process that is forked
    place.prepare({*needed, *(NEEDS if kinds - KINDS.keys() else ())})
    told, num_bad = time.monotonic(), 0
    with ThreadPoolExecutor(jobs) as pool:
        # Workers of the pool do nothing but wait for processes, so that this one can be forked.
        for number, finding in enumerate((pool.map if jobs > 1 else map)(_come_of, cases, [place] * len(cases)), 1):
            yield finding
            if finding.outcome in BAD:
                num_bad += 1
                print(_shown_case(finding), file=sys.stderr)
            if time.monotonic() - told > _SAY_EVERY_S:
                told = time.monotonic()
                print(f"{number:,} of {len(cases):,} cases, {num_bad:,} bad", file=sys.stderr, flush=True)


def check_commands(place: Place) -> None:
    """Hold every command of every kind to what it must do with the undamaged input: it is not refused."""
    for kind in KINDS.values():
        for command in () if callable(kind.commands) else dict.fromkeys(kind.commands):
            apart(_check_command, kind, shlex.split(command), place)


def _check_command(kind: Kind, words: list[str], place: Place) -> None:
    undamaged_run(kind, words, place, Held(place.main))


def table(findings: Sequence[Finding]) -> str:
    """Kinds of input down, classes across, and the sums: Markdown that can be pasted into a page."""
    counts = Counter((finding.kind, finding.outcome) for finding in findings)
    kinds = sorted({finding.kind for finding in findings})
    rows = {kind: [counts[kind, outcome] for outcome in CLASSES] for kind in kinds}
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    longest = max(findings, key=lambda finding: finding.seconds)
    largest = max(findings, key=lambda finding: finding.peak_bytes)
    numbers = (
        f"Longest: {longest.seconds:.1f} s ({longest.kind}:{longest.seed}). Most resident memory: "
        f"{largest.peak_bytes / (1 << 20):,.0f} MB ({largest.kind}:{largest.seed}). "
        f"{sum(finding.kills for finding in findings)} commands were killed."
    )
    lines = [
        "| kind of input | cases | " + " | ".join(CLASSES) + " |",
        "|---|---:|" + "---:|" * len(CLASSES),
        *(f"| {kind} | {sum(row):,} | {' | '.join(f'{number:,}' for number in row)} |" for kind, row in rows.items()),
        "",
        numbers,
    ]
    return "\n".join(lines)


def shown(text: str, most: int = 300) -> str:
    """A text in one line that a terminal can be shown."""
    plain = "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)
    return plain if len(plain) <= most else plain[:most] + " ..."


def _shown_case(finding: Finding) -> str:
    told = {"damage": finding.note, "command": finding.command, "why": finding.why}
    lines = [f"  {name:8} {shown(text)}" for name, text in told.items()]
    return "\n".join([f"{finding.outcome}: make attack CASE={finding.kind}:{finding.seed}", *lines])


def _repeat(case: Case, place: Place) -> Finding:
    """Run one case and show all that comes of it."""
    (finding,) = run([case], place)
    print(f"{finding.outcome}, {finding.seconds:.2f} s\n{_shown_case(finding)}")
    for path in sorted((place.folder / "cases").glob(f"{case[0]}-{case[1]}/std*")):
        lines = path.read_text(errors="replace").splitlines()[-60:]
        print("\n".join([f"--- {path}", *map(shown, lines)]))
    return finding


def parsed(typed: Sequence[str] | None) -> argparse.Namespace:
    """The options that were typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500, metavar="N", help="how many (default 500)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="other cases (default 0)")
    parser.add_argument("--sound", action="store_true", help="then try all commands with undamaged inputs")
    parser.add_argument("--case", metavar="KIND:SEED", help="repeat one case, and show what comes of it")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="at once (default 1)")
    parser.add_argument("--whole", type=float, default=0.0, metavar="X", help="this share as programs of their own")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="trials in which commands are killed")
    parser.add_argument("--races", type=int, default=0, metavar="N", help="trials in which two run at once")
    return parser.parse_args(typed)


def main_of_attack(typed: Sequence[str] | None = None) -> int:
    """Run the campaign as it was typed; 1 where a case is bad or something is lost."""
    # No tracker is to be asked for, over the network, in the middle of an attack.
    os.environ["WANDB_MODE"] = "disabled"
    options = parsed(typed)
    place = Place(Path(tempfile.mkdtemp(prefix="simlab-attack-")), main, options.whole)
    if options.case:
        kind, _, seed = options.case.rpartition(":")
        return int(_repeat((kind, int(seed)), place).outcome in BAD)
    numbers = {KILLED: options.kills, RACED: options.races}
    trials = [(name, options.seed * 1_000_001 + at) for name, number in numbers.items() for at in range(number)]
    findings = list(run([*plan(options.cases, options.seed), *trials], place, options.jobs))
    print(table(findings))
    if options.sound:
        check_commands(place)
    is_bad = any(finding.outcome in BAD for finding in findings)
    if is_bad:
        print(f"\nInputs of bad cases are kept in {place.folder / 'cases'}.")
    else:
        shutil.rmtree(place.folder)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main_of_attack())
