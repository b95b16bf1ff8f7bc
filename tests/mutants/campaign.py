"""`make mutants`: how many small mistakes, planted one at a time in a copy of the tree, the tests catch.

Each mutant is asked of its module's nearest tests, then of further ones (`mutant_tests`). Compiled kernels of modules
that import the mutated one are taken away first: numba renews a file on disk when its own module changes, not when a
callee's does. Outcomes are written as they come; the same command goes on where it was stopped, and ``--again`` asks
today's tests about those that survived.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mutant_places import Mutant, changed_lines, sample
from mutant_tests import ImportGraph, distances, files_to_ask, module_name
from places import REPOSITORY

EQUIVALENT = Path(__file__).with_name("equivalent.json")
"""Mutants that no test can catch, each with a reason."""

FIRST_LIMIT_S, SECOND_LIMIT_S = 240.0, 480.0
"""A run that takes longer counts as caught, when the tests alone do not take as long."""

COMPILED_SHARE = 2
"""Of places that compiled kernels rest on every second is taken: to compile anew takes minutes."""

MEMORY_BYTES = 8 << 30
"""A mutant that fills the memory is stopped before others are."""

TIME = "the limit of time"
CAUGHT, SURVIVED = "caught", "survived"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run of tests said: its exit status, ``None`` when it was stopped, and who objected."""

    status: int | None
    by: tuple[str, ...]

    @property
    def objects(self) -> bool:
        return self.status != 0


@dataclass(frozen=True, slots=True)
class Workshop:
    """A copy of the tree, with kernels compiled from it as it is."""

    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def kernels(self) -> Path:
        return self.folder / "kernels"

    def renew(self) -> None:
        """Copy what git lists and what it does not ignore; a file that is as it was keeps its time and its kernels."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            source, copy = REPOSITORY / name, self.tree / name
            if not source.is_symlink() and not source.exists():
                copy.unlink(missing_ok=True)
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copy.unlink(missing_ok=True)
                copy.symlink_to(source.readlink())
            elif not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copy2(source, copy)
        environment = self.tree / ".venv"
        environment.unlink(missing_ok=True)
        environment.symlink_to((REPOSITORY / ".venv").resolve())

    def ask(self, tests: list[str], limit_s: float, kernels: Path, *, all_of_them: bool = False) -> Answer:
        """Run tests until one fails, or all of them."""
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={scratch}"]
        command += ["--hypothesis-profile=mutants", "--tb=no", "-rfE", *([] if all_of_them else ["-x"]), *tests]
        environment = os.environ | {"PYTHONPATH": str(self.tree), "NUMBA_CACHE_DIR": str(kernels)}
        environment |= {"SIMLAB_KERNELS": "", "SIMLAB_THOROUGH": "1"}
        run = subprocess.Popen(
            command,
            cwd=self.tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = run.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            return Answer(None, (TIME,))
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        return Answer(run.returncode, tuple(failed) or (f"exit status {run.returncode}",))

    def kernels_without(self, module: str, graph: dict[str, set[str]]) -> Path:
        """The kernels that cannot hold anything of a module: all but its own and those of modules that import it."""
        gone = set(distances(graph, module_name(Path(module))))
        left = self.folder / "kernels-left"
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(self.kernels, left, copy_function=os.link)
        for path in left.rglob("*.nb[ic]"):
            folder, stem = path.parent.name.rpartition("_")[0], path.name.partition(".")[0]
            if any(name.endswith(f"{folder}.{stem}") for name in gone):
                path.unlink()
        return left


def compiled(graph: dict[str, set[str]]) -> set[str]:
    """Modules that a compiled kernel may hold something of."""
    kernels = {name for name, wanted in graph.items() if "simlab.jit" in wanted}
    return {name for name in graph if kernels & distances(graph, name).keys()}


def thinned(mutants: Iterator[Mutant], compiled_modules: set[str]) -> Iterator[Mutant]:
    """Every mutant of plain modules, and one of `COMPILED_SHARE` of the others."""
    met = 0
    for mutant in mutants:
        if module_name(Path(mutant.module)) in compiled_modules:
            met += 1
            if met % COMPILED_SHARE:
                continue
        yield mutant


@dataclass(frozen=True, slots=True)
class Campaign:
    """Asks the tests about mutants and keeps what they say."""

    shop: Workshop
    imports: ImportGraph

    @property
    def results(self) -> Path:
        return self.shop.folder / "results.jsonl"

    @property
    def checked(self) -> Path:
        return self.shop.folder / "tests_alone.json"

    def latest(self) -> dict[int, dict[str, Any]]:
        """The last outcome of each mutant, by its number."""
        if not self.results.exists():
            return {}
        rows = map(json.loads, self.results.read_text(encoding="utf-8").splitlines())
        return {row["number"]: row for row in rows}

    def content_alone(self) -> dict[str, bool]:
        """Of each test that was asked without a mutant, whether it was content."""
        known: dict[str, bool] = {}
        if self.checked.exists():
            known = json.loads(self.checked.read_text(encoding="utf-8"))
        return known

    def check(self) -> list[int]:
        """Ask every test that caught something about the tree as it is; the mutants of those that object anyway."""
        known, rows = self.content_alone(), self.latest()
        asked = sorted({row["by"] for row in rows.values() if row["by"].startswith("tests/")} - known.keys())
        if asked:
            answer = self.shop.ask(asked, SECOND_LIMIT_S * len(asked), self.shop.kernels, all_of_them=True)
            known |= {one: one not in answer.by if answer.objects else True for one in asked}
            self.checked.write_text(json.dumps(known, indent=1), encoding="utf-8")
        return [number for number, row in rows.items() if known.get(row["by"]) is False]

    def _planted(self, mutant: Mutant, changed: str, tests: list[str], limit_s: float) -> Answer:
        """What tests say while the mutant is in the tree; the tree is as before, to the time of the file."""
        path = self.shop.tree / mutant.module
        source, times = path.read_bytes(), path.stat()
        rests = module_name(Path(mutant.module)) in compiled(self.imports.graph)
        kernels = self.shop.kernels_without(mutant.module, self.imports.graph) if rests else self.shop.kernels
        try:
            path.write_text(changed, encoding="utf-8")
            self._forget_bytecode(path)
            return self.shop.ask(tests, limit_s, kernels)
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            self._forget_bytecode(path)

    @staticmethod
    def _forget_bytecode(path: Path) -> None:
        for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            kept.unlink()

    def outcome(self, mutant: Mutant, changed: str) -> tuple[str, str]:
        """Whether the nearest tests, or then further ones, object to a mutant, and which."""
        objecting = {one.partition("::")[0] for one, content in self.content_alone().items() if not content}
        first, second = files_to_ask(self.shop.tree, Path(mutant.module))
        for tests, limit_s in ((first, FIRST_LIMIT_S), (second, SECOND_LIMIT_S)):
            asked = [test for test in tests if test not in objecting]
            answer = self._planted(mutant, changed, asked, limit_s) if asked else Answer(0, ())
            slow = answer.status is None and self.shop.ask(asked, limit_s, self.shop.kernels).objects
            if answer.objects and not slow:
                return CAUGHT, answer.by[0]
        return SURVIVED, ""

    def drawn(self, number: int, seed: int) -> list[Mutant]:
        """The mutants of a seed; to look for every place takes a minute."""
        return list(islice(thinned(sample(self.shop.tree, seed), compiled(self.imports.graph)), number))

    def run(self, number: int, mutant: Mutant) -> None:
        """Ask about one mutant and write down the outcome."""
        started = time.monotonic()
        source = (self.shop.tree / mutant.module).read_text(encoding="utf-8")
        changed = mutant.apply(source)
        before, after = changed_lines(source, changed)
        outcome, by = self.outcome(mutant, changed)
        row = {"number": number, **asdict(mutant), "before": before, "after": after}
        row |= {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - started, 1)}
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number:4d} {outcome:8s} {row['seconds']:6.1f} s  {mutant.module}:{mutant.line}  {by}", flush=True)


def why_equivalent(row: Mapping[str, Any]) -> str | None:
    """Why a mutant is equivalent, by its module, its line and the line it became; None where that is not known."""
    listed = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    names = ("module", "before", "after")
    return next((each["reason"] for each in listed if all(each[name] == row[name] for name in names)), None)


def report(rows: list[dict[str, Any]]) -> str:
    """The share caught, then every survivor with its change."""
    survivors = {row["number"]: (row, why_equivalent(row)) for row in rows if row["outcome"] != CAUGHT}
    num_equivalent = sum(reason is not None for _, reason in survivors.values())
    counted, num_caught = len(rows) - num_equivalent, len(rows) - len(survivors)
    share = f" ({num_caught / counted:.1%})" if counted else ""
    lines = [f"{num_caught} of {counted} mutants caught{share}; {num_equivalent} more change no behaviour"]
    for row, reason in survivors.values():
        lines += ["", f"{row['module']}:{row['line']}" + (f"  equivalent: {reason}" if reason else "")]
        lines += [f"- {row['before']}", f"+ {row['after']}"]
    return "\n".join(lines)


def main() -> None:
    """Draw, ask and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200, help="mutants that are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which they are drawn")
    parser.add_argument("--again", action="store_true", help="ask today's tests about those that survived")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    shop = Workshop(REPOSITORY / "build/mutants")
    shop.kernels.mkdir(parents=True, exist_ok=True)
    shop.renew()
    campaign = Campaign(shop, ImportGraph(shop.tree))
    known, mutants = campaign.latest(), campaign.drawn(options.number, options.seed)
    for number, mutant in enumerate(mutants):
        asks_again = options.again and number in known and known[number]["outcome"] == SURVIVED
        if number not in known or (asks_again and why_equivalent(known[number]) is None):
            campaign.run(number, mutant)
    for number in campaign.check():
        campaign.run(number, mutants[number])
    print(report([row for _, row in sorted(campaign.latest().items())]))


if __name__ == "__main__":
    main()
