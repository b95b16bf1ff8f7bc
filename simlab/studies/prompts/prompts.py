"""A prompt file: questions of a benchmark, or the prompts that come with simlab."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from simlab.errors import PromptError, UsageError
from simlab.limits.typed_numbers import MOST_SEED
from simlab.options import count, option, study
from simlab.shared_options import limit_option
from simlab.studies.prompts.copies import find_copy
from simlab.studies.prompts.datasets import BENCHMARKS, TEST
from simlab.studies.result import StudyResult
from simlab.traces.format.files import write_beside

PACKAGED: Mapping[str, str] = {
    "sample": "sample_prompts.jsonl",
    "demo": "demo_prompts.jsonl",
    "demo-dev": "demo_dev_prompts.jsonl",
    "field": "field_prompts.jsonl",
    "field-dev": "field_dev_prompts.jsonl",
}
"""Prompts that come with simlab: of the packaged trace, of the demo, and of the field."""

NAMES = (*BENCHMARKS, *PACKAGED)
"""Everything that prompts can be made of."""

Prompt = Mapping[str, object]
"""``id``, ``dataset`` and ``turns``, as a line of the file has them."""


@dataclass(frozen=True, eq=False, repr=False)
class PromptFile(StudyResult):
    """A file of prompts that was written.

    Attributes:
        path: of the file.
        of: what they are of, in words.
        num_there: prompts that there were to choose from.
        prompts: those of the file, in its order.
    """

    path: Path
    of: str
    num_there: int
    prompts: tuple[Prompt, ...]

    ROWS = "prompts"

    def to_json(self) -> dict[str, object]:
        """The prompts, and where they are."""
        return {"path": str(self.path), "of": self.of, "num_there": self.num_there, "prompts": list(self.prompts)}

    def text(self) -> str:
        """What ``simlab prompts`` prints."""
        return (
            f"{len(self.prompts):,} of {self.num_there:,} prompts of {self.of}: {self.path}\n"
            f"Record them with `simlab record --prompts {shlex.quote(str(self.path))} --out DIR`."
        )


@dataclass(frozen=True)
class PromptsOptions:
    """Which prompts are written."""

    DETAILS: ClassVar = """\
Benchmarks are read from --from FILE, your own copy (GSM8K's test.jsonl, mbpp.jsonl or sanitized-mbpp.json,
HumanEval.jsonl.gz, MT-bench's question.jsonl, or the hub's Parquet), else from the Hugging Face Hub.
Questions are put in the words of the DFlash release's benchmark.

  split   gsm8k      mbpp                humaneval                  mt-bench
  test    its test   tasks 11 to 510     three of four              three of four
  dev     its train  tasks 601 to 974    numbers 2, 6, 10, ...      questions 82, 86, 90, ...
  all     -          -                   all 164                    all 80

Choose on dev, report on test: no prompt is in both. sample has the prompts of the packaged trace, demo and
demo-dev those of `simlab demo`, field and field-dev those of `simlab field`.

  simlab prompts gsm8k --split dev --seed 0 --limit 40 --out runs/dev.jsonl
  simlab prompts gsm8k --from grade_school_math/data/test.jsonl --limit 100 --out runs/gsm8k.jsonl
  simlab record --prompts runs/gsm8k.jsonl --out runs/gsm8k"""

    name: str = option(..., ", ".join(NAMES), "NAME", choices=NAMES, positional=True)
    _: KW_ONLY
    out: str | Path = option(..., "the prompt file, JSON lines", "FILE", read=Path)
    source: str | Path | None = option(
        None, "your own copy, or a dataset ORG/NAME on the hub (default there)", "FILE", names="--from"
    )
    split: str | None = option(None, "which prompts: see above (default test)", choices=("test", "dev", "all"))
    seed: int | None = option(None, "in a drawn order (default: as in the file)", "N", read=count(0, MOST_SEED))
    skip: int = option(0, "leave out the first N", "N", read=count(0))
    limit: int | None = limit_option("N prompts, at most")


@study(PromptsOptions)
def prompts(options: PromptsOptions) -> PromptFile:
    """Write a file of prompts that `simlab.record` reads.

    Raises:
        UsageError: the file is there already, or nothing is left to write.
        PromptError: the rows cannot be read, or are of something else.
        ModelError: the hub does not give them out; says why.
    """
    path = Path(options.out)
    if path.exists():
        raise UsageError(f"{path} exists, and a prompt file is not overwritten; give another --out, or remove it")
    there, of = (
        _packaged(options.name, options.source, options.split)
        if options.name in PACKAGED
        else _asked(options.name, options.source, options.split)
    )
    chosen = _chosen(there, options.seed, options.skip, options.limit)
    if not chosen:
        raise UsageError(
            f"there are {len(there):,} prompts of {of}, and --skip {options.skip} leaves none; give a smaller one"
        )
    text = "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in chosen)
    write_beside(path, lambda file: file.write(text.encode()))
    return PromptFile(path, of, len(there), tuple(chosen))


def _packaged(name: str, source: object, split: object) -> tuple[list[Prompt], str]:
    if source is not None or split is not None:
        raise UsageError(f"{name} comes with simlab and has no splits; leave out --from and --split")
    text = (files("simlab") / "data" / PACKAGED[name]).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.rstrip().split("\n")]  # noqa: TID251 - simlab's own file
    return rows, f"simlab's own set {name}"


def _asked(name: str, source: str | Path | None, split: str | None) -> tuple[list[Prompt], str]:
    benchmark, split = BENCHMARKS[name], TEST if split is None else split
    if split not in benchmark.files:
        raise UsageError(f"{name} has the splits {', '.join(benchmark.files)}; got {split!r}")
    copy = find_copy(benchmark, split, None if source is None else str(source))
    there: list[Prompt] = []
    for row in copy.rows():
        question = benchmark.question(row)
        if benchmark.is_of(question.number, split):
            identity = benchmark.prompt_id(question, split)
            there.append({"id": identity, "dataset": benchmark.name, "turns": list(question.turns)})
    if not there:
        raise PromptError(f"{copy.place} has no prompt of the split {split} of {name}; give another copy, or --split")
    return there, f"{name}, split {split}, from {copy.place}"


def _chosen(there: Sequence[Prompt], seed: int | None, skip: int, limit: int | None) -> list[Prompt]:
    """Some prompts in order; a drawn order depends on the seed and the ids alone, so it is the same everywhere."""

    def drawn(prompt: Prompt) -> bytes:
        return hashlib.sha256(f"{seed} {prompt['id']}".encode()).digest()

    ordered = list(there) if seed is None else sorted(there, key=drawn)
    return ordered[skip : None if limit is None else skip + limit]
