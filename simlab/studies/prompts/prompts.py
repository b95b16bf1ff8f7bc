"""A prompt file: questions of a benchmark, or the prompts that come with simlab; and how many prompts are needed."""

import codecs
import gzip
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import polars as pl

from simlab.errors import PromptError, UsageError
from simlab.limits import MOST_SEED, check_memory, most_bytes
from simlab.options import count, limit_option, option, study
from simlab.real_runner.targets.hub_files import at_revision, fetch, is_hub_id
from simlab.studies.inputs.trace import TraceSource
from simlab.studies.prompts.benchmarks import BENCHMARKS, TEST, Benchmark, Row
from simlab.studies.prompts.how_many import PromptNumbers, how_many, parse_percent
from simlab.studies.result import StudyResult
from simlab.traces.format.files import write_beside
from simlab.traces.parquet.sizes import check_size
from simlab.untrusted.json_text import open_file, parse_json

# The rows of a benchmark: of a file of the person's own, or of the files that the hub has.


_AS_OBJECTS = 12
"""What a file holds takes so many times as much memory as Python's objects."""

_BEGIN = 1 << 10
"""Bytes among which the first one that is no space tells a list from lines."""

_ENDINGS = (".jsonl", ".json", ".gz", ".parquet")


def rows_of(paths: Sequence[Path]) -> Iterator[Row]:
    """All rows of a benchmark, file by file."""
    index = 0
    for path in paths:
        for number, fields in enumerate(_read(path), 1):
            if not isinstance(fields, Mapping):
                raise PromptError(f"{path}, entry {number}: expected a JSON object; got {type(fields).__name__}")
            yield Row(f"{path}, entry {number}", index, fields)
            index += 1


def find_copy(benchmark: Benchmark, split: str, source: str | None) -> tuple[str, list[Path]]:
    """Where the rows of a split are.

    Args:
        benchmark: whose.
        split: one of those in ``benchmark.files``.
        source: a file, or a data set's id on the hub; None: where it was published.

    Returns:
        What they are called where they are named to a person, and the files.

    Raises:
        ModelError: the hub does not give the files out; says why.
        PromptError: there are none, or the file is by its name of another split.
    """
    if source is not None and (Path(source).exists() or source.endswith(_ENDINGS) or not is_hub_id(source)):
        _check_split(benchmark, split, Path(source))
        return source, [Path(source)]
    return _fetched(source or benchmark.repository, benchmark.files[split])


def _check_split(benchmark: Benchmark, split: str, path: Path) -> None:
    """Refuse a file that carries the name of another split: dev prompts would be among those to report on."""
    words = re.split(r"[^a-z]+", path.name.lower())
    for other, own in benchmark.own_names.items():
        if other != split and own in words and benchmark.own_names[split] not in words:
            raise PromptError(
                f"{path.name} is by its name the split {own}, of which the {other} prompts are; give the file of the "
                f"split {benchmark.own_names[split]}, or --split {other}"
            )


def _fetched(name: str, pattern: str) -> tuple[str, list[Path]]:
    try:
        files = fetch("dataset", name, [pattern])
    except ModuleNotFoundError as error:
        raise PromptError(
            f"fetching {name} needs the package {error.name}, which is not installed; install it with "
            "`pip install huggingface_hub`, or give a copy of your own with --from FILE"
        ) from error
    matching = sorted(files.folder.glob(pattern))
    if not matching:
        raise PromptError(f"the dataset {name} holds none of {pattern}; give a copy of your own with --from FILE")
    return at_revision(name, files.revision[:12]), matching


def _read(path: Path) -> Iterable[object]:
    """The rows of one file: Parquet, JSON lines or a JSON list, also packed with gzip."""
    if path.suffix == ".parquet":
        try:
            check_size(path, at_once=_AS_OBJECTS)
            table = pl.read_parquet(path, glob=False)
            letters = table.select(pl.col(pl.String).str.len_bytes().sum()).sum_horizontal().sum()
            check_memory(_AS_OBJECTS * int(letters), f"reading {path}")
            return table.to_dicts()
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise PromptError(f"{path} cannot be read as Parquet ({reason}); fetch it again") from error
    return _lines(path)


def _lines(path: Path) -> Iterator[object]:
    """The rows of JSON lines, one by one, since a benchmark of code has gigabytes of tests; or those of a list."""
    most = most_bytes() // _AS_OBJECTS
    try:
        with open_file(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            # Not splitlines: a text may hold U+2028, which ends no line of JSON.
            number = 0
            is_list = file.peek(_BEGIN)[:_BEGIN].removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
            while line := file.read(most + 1) if is_list else file.readline(most + 1):
                number += 1
                if len(line) > most:
                    # A few bytes of a packed file can stand for a great many.
                    check_memory(_AS_OBJECTS * len(line), f"reading more of {path}")
                if line.strip():
                    value = _parsed(line.decode("utf-8-sig"), path, number)
                    yield from value if is_list and isinstance(value, list) else [value]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PromptError(f"{path} cannot be read ({reason}); expected JSON lines, a JSON list or Parquet") from error


def _parsed(text: str, path: Path, line: int) -> object:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise PromptError(f"{path}, line {line}: expected one JSON object a line; got invalid JSON: {error}") from error
    return value


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
    """Which prompts are written, or how large a difference is to be detected."""

    DETAILS: ClassVar = """\
Benchmarks are read from --from FILE, your own copy (GSM8K's test.jsonl, mbpp.jsonl or sanitized-mbpp.json,
HumanEval.jsonl.gz, MT-bench's question.jsonl, or the hub's Parquet), else from the Hugging Face Hub.
Questions are put in the words of the DFlash release's benchmark. math-500, aime24 and aime25 are cut as humaneval
is: three of four rows to report on, rows 2, 6, 10, ... to choose on. livecodebench (test.jsonl to test6.jsonl) and
SPEED-Bench are cut so by their question_id. speed-bench has the 880 rows of 11 categories, speed-bench-1k to -32k
those of throughput at so many tokens; a prompt's dataset is its category. The hub's copies of these lack many texts:
make whole ones with prepare_data.py of NVIDIA's specdec_bench.

  split   gsm8k      mbpp                humaneval                  mt-bench
  test    its test   tasks 11 to 510     three of four              three of four
  dev     its train  tasks 601 to 974    numbers 2, 6, 10, ...      questions 82, 86, 90, ...
  all     -          -                   all 164                    all 80

Choose on dev, report on test: no prompt is in both. sample has the prompts of the packaged trace, demo and
demo-dev those of `simlab demo`, field and field-dev those of `simlab study field`.

With --for it writes nothing, and says before you record how many prompts a difference of so many percent takes:
for prompts like those of the packaged trace, or of --trace, whose own number it judges too.

  simlab prompts --for 3%
  simlab prompts --for 2% --trace runs/mine -p ddtree:budget=32 -p ddtree:budget=16
  simlab prompts gsm8k --split dev --seed 0 --limit 40 --out runs/dev.jsonl
  simlab prompts gsm8k --from grade_school_math/data/test.jsonl --limit 100 --out runs/gsm8k.jsonl
  simlab record --prompts runs/gsm8k.jsonl --out runs/gsm8k"""

    name: str | None = option(None, ", ".join(NAMES), "NAME", choices=NAMES, positional=True)
    _: KW_ONLY
    out: str | Path | None = option(None, "the prompt file, JSON lines", "FILE", read=Path)
    source: str | Path | None = option(
        None, "your own copy, or a dataset ORG/NAME on the hub (default there)", "FILE", names="--from"
    )
    split: str | None = option(None, "which prompts: see above (default test)", choices=("test", "dev", "all"))
    seed: int | None = option(None, "in a drawn order (default: as in the file)", "N", read=count(0, MOST_SEED))
    skip: int = option(0, "leave out the first N", "N", read=count(0))
    limit: int | None = limit_option("N prompts, at most")
    difference: float | None = option(
        None,
        "write nothing; say how many prompts detect a difference of X percent, as in 3%",
        "X%",
        read=parse_percent,
        names="--for",
        group="how many prompts",
    )
    trace: TraceSource | None = option(
        None, "a trace whose prompts yours are like (default: the packaged one)", "DIR", group="how many prompts"
    )
    policies: Sequence[str] = option(
        (),
        "policies to compare, the first with each other one (default: three typical comparisons)",
        "POLICY",
        names="-p --policy",
        repeats=True,
        group="how many prompts",
    )
    cost: str | Path | None = option(
        None, "latency profile (default: the packaged one of the trace)", "FILE", read=Path, group="how many prompts"
    )
    draft_set: str | None = option(
        None, "the draft set, where the trace holds more than one", "NAME", group="how many prompts"
    )

    def __post_init__(self) -> None:
        of_file = ("name", "out", "source", "split", "seed", "skip", "limit")
        of_numbers = ("trace", "policies", "cost", "draft_set")
        if self.difference is None and (self.name is None or self.out is None):
            raise ValueError("expected NAME and --out FILE, or --for X%; see `simlab prompts --help`")
        refused = of_numbers if self.difference is None else of_file
        given = [name for name in refused if getattr(self, name) != getattr(PromptsOptions, name)]
        if given:
            typed = {"name": "NAME", "source": "--from", "policies": "-p"}
            names = ", ".join(typed.get(name, f"--{name.replace('_', '-')}") for name in given)
            what = "--for writes no file" if of_file is refused else "without --for a file is written"
            raise ValueError(f"{what}; leave out {names}")


@study(PromptsOptions)
def prompts(options: PromptsOptions) -> PromptFile | PromptNumbers:
    """Write a file of prompts that `simlab.record` reads; or, with a ``difference``, say how many prompts it takes.

    Raises:
        UsageError: the file is there already, or nothing is left to write.
        PromptError: the rows cannot be read, or are of something else.
        ModelError: the hub does not give them out; says why.
    """
    if options.difference is not None:
        return how_many(options.difference, options.trace, options.policies, options.cost, options.draft_set)
    assert options.name is not None
    assert options.out is not None
    path = Path(options.out)
    if path.exists():
        raise UsageError(f"{path} exists, and a prompt file is not overwritten; give another --out, or remove it")
    available, of = (
        _packaged(options.name, options.source, options.split)
        if options.name in PACKAGED
        else _asked(options.name, options.source, options.split)
    )
    chosen = _chosen(available, options.seed, options.skip, options.limit)
    if not chosen:
        raise UsageError(
            f"there are {len(available):,} prompts of {of}, and --skip {options.skip} leaves none; give a smaller one"
        )
    text = "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in chosen)
    write_beside(path, lambda file: file.write(text.encode()))
    return PromptFile(path, of, len(available), tuple(chosen))


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
    location, copies = find_copy(benchmark, split, None if source is None else str(source))
    prompts: list[Prompt] = []
    for row in rows_of(copies):
        question = benchmark.question(row)
        if benchmark.is_of(question.number, split):
            identity = benchmark.prompt_id(question, split)
            dataset = question.dataset or benchmark.name
            prompts.append({"id": identity, "dataset": dataset, "turns": list(question.turns)})
    if not prompts:
        raise PromptError(f"{location} has no prompt of the split {split} of {name}; give another copy, or --split")
    return prompts, f"{name}, split {split}, from {location}"


def _chosen(prompts: Sequence[Prompt], seed: int | None, skip: int, limit: int | None) -> list[Prompt]:
    """Some prompts in order; a drawn order depends on the seed and the ids alone, so it is the same everywhere."""

    def drawn(prompt: Prompt) -> bytes:
        return hashlib.sha256(f"{seed} {prompt['id']}".encode()).digest()

    ordered = list(prompts) if seed is None else sorted(prompts, key=drawn)
    return ordered[skip : None if limit is None else skip + limit]
