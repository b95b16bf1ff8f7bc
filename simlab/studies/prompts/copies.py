"""The rows of a benchmark: of a file of the person's own, or of the files that the hub has."""

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from simlab.errors import PromptError
from simlab.limits.memory import check_memory, most_bytes
from simlab.real_runner.targets.hub_files import at_revision, fetch, is_hub_id
from simlab.studies.prompts.datasets import Benchmark, Row
from simlab.traces.parquet.checks import check_size
from simlab.untrusted.json_text import parse_json

_AS_OBJECTS = 12
"""What a file holds takes so many times as much memory as Python's objects."""

_ENDINGS = (".jsonl", ".json", ".gz", ".parquet")


@dataclass(frozen=True, slots=True)
class Copy:
    """A benchmark's files, and what they are called where they are named to a person."""

    place: str
    paths: tuple[Path, ...]

    def rows(self) -> Iterator[Row]:
        """All rows, file by file."""
        index = 0
        for path in self.paths:
            for number, fields in enumerate(_read(path), 1):
                if not isinstance(fields, Mapping):
                    raise PromptError(f"{path}, entry {number}: expected a JSON object; got {type(fields).__name__}")
                yield Row(f"{path}, entry {number}", index, fields)
                index += 1


def find_copy(benchmark: Benchmark, split: str, source: str | None) -> Copy:
    """Where the rows of a split are.

    Args:
        benchmark: whose.
        split: one of those in ``benchmark.files``.
        source: a file, or a data set's id on the hub; None: where it was published.

    Raises:
        ModelError: the hub does not give the files out; says why.
        PromptError: there are none, or the file is by its name of another split.
    """
    if source is not None and (Path(source).exists() or source.endswith(_ENDINGS) or not is_hub_id(source)):
        _check_split(benchmark, split, Path(source))
        return Copy(source, (Path(source),))
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


def _fetched(name: str, pattern: str) -> Copy:
    try:
        files = fetch("dataset", name, [pattern])
    except ModuleNotFoundError as error:
        raise PromptError(
            f"fetching {name} needs the package {error.name}, which is not installed; install it with "
            "`pip install huggingface_hub`, or give a copy of your own with --from FILE"
        ) from error
    found = tuple(sorted(files.folder.glob(pattern)))
    if not found:
        raise PromptError(f"the dataset {name} holds none of {pattern}; give a copy of your own with --from FILE")
    return Copy(at_revision(name, files.revision[:12]), found)


def _read(path: Path) -> Sequence[object]:
    """The rows of one file: Parquet, JSON lines or a JSON list, also packed with gzip."""
    if path.suffix == ".parquet":
        try:
            check_size(path, at_once=_AS_OBJECTS)
            table = pl.read_parquet(path)
            letters = table.select(pl.col(pl.String).str.len_bytes().sum()).sum_horizontal().sum()
            check_memory(_AS_OBJECTS * int(letters), f"reading {path}")
            return table.to_dicts()
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise PromptError(f"{path} cannot be read as Parquet ({reason}); fetch it again") from error
    try:
        text = (_unpacked(path) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PromptError(f"{path} cannot be read ({reason}); expected JSON lines, a JSON list or Parquet") from error
    if text.lstrip().startswith("["):
        listed = _parsed(text, path, 1)
        assert isinstance(listed, list)
        return listed
    # Not splitlines: a text may hold U+2028, which ends no line of JSON.
    lines = text.rstrip().split("\n")
    return [_parsed(line, path, number) for number, line in enumerate(lines, 1)]


def _unpacked(path: Path) -> bytes:
    """What a file packed with gzip holds; a few bytes of it can stand for a great many."""
    most = most_bytes() // _AS_OBJECTS
    with gzip.open(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        check_memory(_AS_OBJECTS * len(data), f"reading more of {path}")
    return data


def _parsed(text: str, path: Path, line: int) -> object:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise PromptError(f"{path}, line {line}: expected one JSON object a line; got invalid JSON: {error}") from error
    return value
