"""Several result files in one, or the parts of one work; refused where they contradict each other."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

import polars as pl

from simlab.errors import UsageError
from simlab.options import option, progress_option, study
from simlab.studies.inputs.progress import progress_bar
from simlab.traces.artefacts.kinds import format_of
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest import read_manifest
from simlab.traces.parts import merge_recordings
from simlab.traces.results.files import (
    NotedPart,
    SequenceCounts,
    check_together,
    read_unfinished_results,
    results_part,
    write_results,
)
from simlab.traces.results.rounds_file import FORMAT as ROUNDS
from simlab.traces.results.rounds_file import merge_rounds
from simlab.traces.results.rows import KEYS, Results, find_missing_rows, joined_results
from simlab.traces.results.sums import FORMAT as SUMS
from simlab.traces.results.sums import merge_sums
from simlab.untrusted.visible import ShownText


@dataclass(frozen=True, slots=True, repr=False)
class Merged(ShownText):
    """What was put together: a trace, sums, rounds, or the rows of result files.

    Attributes:
        paths: of the parts.
        out: the file that was written, or the folder of the trace.
        what: it holds: ``shards``, ``sums``, ``rounds`` or ``rows``.
        number: how many of them.
        rows: of result files, in the order of these; None of anything else.
        repeated: how many rows were in more than one file, and stand here once.
        unfinished: which policy lacks texts that others have, in words; None where all have the same.
    """

    paths: tuple[str | Path, ...]
    out: Path
    what: str
    number: int
    rows: Results | None = None
    repeated: int = 0
    unfinished: str | None = None

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab merge --json``."""
        of_rows = {} if self.rows is None else {"repeated": self.repeated, "unfinished": self.unfinished}
        return {"path": str(self.out), self.what: self.number, **of_rows}

    def text(self) -> str:
        """What ``simlab merge`` prints."""
        files = "parts" if self.rows is None else "files"
        whence = "" if self.what == "shards" else f" of {len(self.paths)} {files}"
        lines = [f"{self.number:,} {self.what}{whence}: {self.out}"]
        if self.repeated:
            lines.append(f"{self.repeated:,} rows were in more than one file, and stand there once.")
        if self.unfinished is not None:
            lines.append(
                f"Not finished: {self.unfinished}. Merge the rest too, or replay it with --resume; no table is made "
                "before."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class MergeOptions:
    """Which files or folders are put together."""

    DETAILS: ClassVar = """\
Files of other policies, latency profiles, prompts or traces. Rows that are the same in several files, such
as those of autoregressive decoding, are taken once; files that say different things of one policy and text are
refused.

  simlab merge monday.parquet tuesday.parquet --out all.parquet

What several machines made with --shard is put together, in any order, to the bytes that one would have written.
Missing parts, and parts of different works, are refused by name. Parts that were recorded into one folder need no
--out.

  simlab merge part0.parquet part1.parquet part2.parquet part3.parquet --out all.parquet
  simlab merge runs/part0 runs/part1 --out runs/mine
  simlab merge runs/shared"""

    parts: Sequence[str | Path] = option(
        ...,
        "result files of replay, optimize or confirm; parts of rounds or sums; or folders of recordings in parts",
        "FILE|DIR",
        repeats=True,
        positional=True,
    )
    out: str | Path | None = option(None, "what to write; not needed for one folder", "FILE|DIR", read=Path)
    _: KW_ONLY
    progress: bool | None = progress_option()


@study(MergeOptions)
def merge(options: MergeOptions) -> Merged:
    """Put several result files into one, or the parts of a recording into one trace.

    What was made with ``--shard`` is put together to the bytes that one process would have written.

    A row that is in several files, in all its columns the same, is taken once: every replay brings the rows of
    autoregressive decoding, the chain and the bounds.

    Raises:
        UsageError: fewer than two files, ``out`` is there, or two files say different things of one policy, text and
            latency profile; parts are missing, or of different works.
        TraceError: a file cannot be read or written, or is damaged.
    """
    folders = [Path(path) for path in options.parts if Path(path).is_dir()]
    if folders:
        return _merged_trace(options.parts, folders, options.out, options.progress)
    if options.out is None:
        raise UsageError("result files are merged into another; name it with --out FILE")
    if len(options.parts) < 2:
        raise UsageError("a merge takes two or more result files")
    parts, out = tuple(options.parts), Path(options.out)
    with exclusive_lock(out):
        if out.exists():
            raise UsageError(f"{out} is there already; give another --out")
        formats = {format_of(Path(path)) for path in parts}
        if SUMS in formats:
            return Merged(parts, out, "sums", merge_sums(parts, out).height)
        if ROUNDS in formats:
            return Merged(parts, out, "rounds", merge_rounds(parts, out))
        merged, repeated, sequences = _merged(parts)
        write_results(out, merged, sequences)
    return Merged(parts, out, "rows", merged.height, merged, repeated, find_missing_rows(merged))


def _merged_trace(
    paths: Sequence[str | Path], folders: Sequence[Path], out: str | Path | None, progress: bool | None
) -> Merged:
    others = [path for path in paths if Path(path) not in folders]
    if others:
        raise UsageError(
            f"{folders[0]} is a folder and {others[0]} is none; merge parts of recordings, or result files"
        )
    with progress_bar(progress, "merge", "shard") as bar:
        folder = merge_recordings(folders, None if out is None else Path(out), bar.update)
    return Merged(tuple(paths), folder, "shards", len(read_manifest(folder).held().shards))


def _merged(paths: Sequence[str | Path]) -> tuple[Results, int, SequenceCounts]:
    """The rows of all files, how many of them were there again, and how many sequences the traces hold."""
    parts: list[Results] = []
    noted: list[NotedPart | None] = []
    sequences: dict[str, int] = {}
    for path in paths:
        rows, known = read_unfinished_results(path)
        noted.append(results_part(path))
        _check_same_traces(path, sequences, known)
        sequences |= known
        parts.append(rows.with_columns(file=pl.lit(len(parts), pl.Int32)))
    together = pl.concat(parts)
    once = together.unique([name for name in together.columns if name != "file"], keep="first", maintain_order=True)
    _check_contradictions(once, paths)
    if any(noted):
        _check_parts(paths, noted, once)
        once = once.sort("sequence", maintain_order=True)
    return joined_results([once.drop("file")]), together.height - once.height, sequences


def _check_parts(paths: Sequence[str | Path], noted: Sequence[NotedPart | None], once: Results) -> None:
    """Refuse parts of a replay that are not all there, or of which one was made with other policies or not finished."""
    check_together(paths, noted)
    policies: dict[int, list[tuple[str, ...]]] = {}
    for file, *policy in (
        once.select("file", "policy", "policy_id", "cost_id", "channel_ids").unique(maintain_order=True).iter_rows()
    ):
        policies.setdefault(file, []).append(tuple(policy))
    (first, wanted), *others = policies.items() or [(0, [])]
    for file, own in others:
        if own != wanted:
            raise UsageError(
                f"{paths[first]} and {paths[file]} are parts of different replays: {_differing(wanted, own)}"
            )
    unfinished = find_missing_rows(once.drop("file"))
    asked = noted[0].of.get("sequences") if noted[0] is not None else None
    if unfinished is None and once["sequence"].n_unique() != asked:
        unfinished = f"the parts hold {once['sequence'].n_unique()} sequences of {asked}"
    if unfinished is not None:
        raise UsageError(f"a part is not finished: {unfinished}; finish it with --resume")


def _differing(wanted: Sequence[tuple[str, ...]], own: Sequence[tuple[str, ...]]) -> str:
    """In which policy two lists of policies differ."""
    for row in (*wanted, *own):
        if row not in wanted or row not in own:
            where = "first" if row in wanted else "second"
            return f"{row[0]} ({row[1]}, latency profile {row[2]}) is in the {where} alone"
    return "their policies stand in another order"


def _check_same_traces(path: str | Path, before: SequenceCounts, known: SequenceCounts) -> None:
    for text_id, number in known.items():
        if before.get(text_id, number) != number:
            raise UsageError(
                f"{path} says that the trace {text_id} holds {number} sequences, and a file before it says "
                f"{before[text_id]}: one of them is damaged"
            )


def _check_contradictions(once: Results, paths: Sequence[str | Path]) -> None:
    """Refuse rows of one policy and text from two files that differ; repeats within a file are its own business."""
    files = once.group_by(KEYS, maintain_order=True).agg(
        pl.col("policy").first(), pl.col("file").unique(maintain_order=True)
    )
    both = files.filter(pl.col("file").list.len() > 1)
    if both.is_empty():
        return
    row = both.row(0, named=True)
    first, second = (paths[number] for number in row["file"][:2])
    what = "measured" if row["kind"] == "measured" else "replayed"
    raise UsageError(
        f"{first} and {second} both hold what {row['policy']} did on sequence {row['sequence']} of text "
        f"{row['text_id']}, {what} with other outcomes; merge files of different policies, prompts, latency profiles "
        "or traces"
    )
