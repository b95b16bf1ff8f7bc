"""``make attack``: a campaign of damaged inputs; each must be refused in one sentence, or change no figure.

The same seed draws the same cases everywhere. See docs/development/index.md.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random

from attack_cases import Case, Finding, Kind, parse_case, plan
from attack_inputs import make_inputs
from attack_judge import BAD
from attack_kills import LOST, NEEDS, Kills
from attack_kinds import KINDS
from attack_table import as_json, as_markdown, disagreeing, shown
from attack_watch import Watch
from attack_worker import Place, Worker

from simlab.cli.main import COMMANDS, main

_SAY_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Campaign:
    """Kinds of input, a folder to work in, and how much is run.

    Attributes:
        whole_share: share of the cases that are run once more as processes of their own.
    """

    kinds: dict[str, Kind]
    folder: Path
    jobs: int = 1
    whole_share: float = 0.0

    def prepare(self, with_writers: bool = False) -> None:
        """Make the undamaged inputs, and import what workers will need."""
        names = {name for kind in self.kinds.values() for name in kind.inputs}
        names |= set(NEEDS) if with_writers else set()
        make_inputs(self.folder / "inputs", names)
        (self.folder / "baselines").mkdir(exist_ok=True)
        for command in COMMANDS.values():
            import_module(command.run.partition(":")[0])
        if "models" in names:
            import_module("simlab.real_runner.models")

    def worker(self, number: int) -> Worker:
        """The worker of this number."""
        place = Place(self.folder / "inputs", self.folder / "baselines", self.folder / f"slot-{number}")
        return Worker(self.kinds, place, main, repeats=True)

    def run(self, cases: Sequence[Case], progress: bool = True) -> list[Finding]:
        """What comes of some cases."""
        watch = Watch(self.worker, self.jobs, self.folder / "failed")
        found: list[Finding] = []
        said = time.monotonic()
        for finding in watch.run(cases, self._is_whole):
            found.append(finding)
            if finding.outcome in BAD and progress:
                print(
                    f"{finding.outcome}: {finding.case}: {shown(finding.note, 100)}: {shown(finding.why, 160)}",
                    file=sys.stderr,
                )
            if progress and time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                bad = sum(finding.outcome in BAD for finding in found)
                print(f"{len(found):,} of {len(cases):,} cases, {bad:,} bad", file=sys.stderr, flush=True)
        return found

    def _is_whole(self, case: Case) -> bool:
        return Random(f"whole {case.name}").random() < self.whole_share


def parsed(typed: Sequence[str] | None) -> argparse.Namespace:
    """The options that were typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500, metavar="N", help="how many (default 500)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="other cases (default 0)")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="of these kinds only")
    parser.add_argument("--case", metavar="KIND:SEED", help="repeat one case, and show what comes of it")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="workers (default 1)")
    parser.add_argument("--whole", type=float, default=0.0, metavar="X", help="run this share as processes too")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill commands so often, and run them again")
    parser.add_argument("--races", type=int, default=0, metavar="N", help="so often two commands at once")
    parser.add_argument("--writer", action="append", metavar="COMMAND", help="kills and races of these alone")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to work (default: a temporary folder)")
    parser.add_argument("--found", type=Path, metavar="FILE", help="write the causes of bad cases there, Markdown")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(typed)


def attack(options: argparse.Namespace, folder: Path) -> int:
    """Run what was asked for; 1 where a case is bad or something is lost."""
    case = parse_case(options.case) if options.case else None
    names = [case.kind] if case else options.kind or list(KINDS)
    campaign = Campaign({name: KINDS[name] for name in names}, folder, options.jobs, 1.0 if case else options.whole)
    campaign.prepare(with_writers=options.kills + options.races > 0)
    cases = [case] if case else plan(list(campaign.kinds.values()), options.cases, options.seed)
    found = campaign.run(cases)
    kills = []
    if options.kills or options.races:
        asked = Kills(folder / "inputs", folder / "kills", options.writer or ())
        kills = asked.run(options.kills, options.races, options.seed)
    if case:
        _show(found[0], folder)
    elif options.json:
        print(as_json(found, kills, options.seed))
    else:
        print(as_markdown(found, kills))
        print(f"\nDamaged inputs of bad cases are kept in {folder / 'failed'}." if _is_bad(found) else "")
    if options.found:
        options.found.write_text(as_markdown(found, kills) + "\n")
    return int(_is_bad(found) or disagreeing(found) > 0 or any(kill.outcome == LOST for kill in kills))


def _is_bad(found: Sequence[Finding]) -> bool:
    return any(finding.outcome in BAD for finding in found)


def _show(found: Finding, folder: Path) -> None:
    slot = folder / "slot-0"
    print(f"{found.case}: {found.outcome} (as a process: {found.whole or 'not run'}), {found.seconds:.2f} s")
    print(f"damage:  {shown(found.note)}\ncommand: cd {slot / 'run'} && {shown(found.command)}\nwhy:     {found.why}")
    for name in ("stdout", "stderr"):
        text = (slot / name).read_text(errors="replace") if (slot / name).is_file() else ""
        print(f"--- {name}\n" + "\n".join(shown(line) for line in text.splitlines()[-60:]))


def main_of_attack(typed: Sequence[str] | None = None) -> int:
    """Run the campaign as it was typed."""
    # No tracker is to be asked for, over the network, in the middle of an attack.
    os.environ["WANDB_MODE"] = "disabled"
    options = parsed(typed)
    if options.folder is not None:
        return attack(options, options.folder.resolve())
    folder = Path(tempfile.mkdtemp(prefix="simlab-attack-"))
    return attack(options, folder)


if __name__ == "__main__":
    sys.exit(main_of_attack())
