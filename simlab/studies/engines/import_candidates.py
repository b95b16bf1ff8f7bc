"""Candidates that another engine wrote: a trace where a replay may claim its figures, else counts by depth and rank."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlab.analysis.table.text import aligned, number, within_width
from simlab.arrays import Doubles, Longs
from simlab.errors import UsageError
from simlab.options import study
from simlab.studies.engines.import_options import OF_METRICS, OF_TIMINGS, ImportOptions
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.candidates import OVER_VOCABULARY, CandidateDump, DumpHeader, read_candidates
from simlab.traces.imported import DRAFT, LACKS, why_no_trace, write_imported_trace
from simlab.traces.reader import Trace

_SHOWN_RANKS = 4


@dataclass(frozen=True, eq=False, repr=False)
class CandidateCounts(StudyResult):
    """What a file of candidates says by itself, at the roots that it has.

    Attributes:
        path: of the file.
        header: its first line.
        num_texts, num_rounds: in it; no texts where it has none.
        num_reached: int64 ``[D]``, roots behind which the text has a token of that depth.
        right: int64 ``[D, K]``, those at which the candidate of that rank is that token.
        claimed: float64 ``[D, K]``, the mean probability that the drafter gave the candidate of that rank there.
        num_told: rounds that say how many tokens the engine accepted.
        accepted: int64 ``[D]``, those of them that accepted so many or more.
        why_no_trace: why no trace can be made of it, in a sentence; empty where one can.
    """

    path: Path
    header: DumpHeader
    num_texts: int
    num_rounds: int
    num_reached: Longs
    right: Longs
    claimed: Doubles
    num_told: int
    accepted: Longs
    why_no_trace: str

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        rows = [
            {
                "depth": depth + 1,
                "roots": int(self.num_reached[depth]),
                "right_by_rank": self.right[depth].tolist(),
                "claimed_by_rank": [float(value) for value in self.claimed[depth]] if self.num_reached[depth] else None,
                "engine_accepted": int(self.accepted[depth]),
            }
            for depth in range(self.header.depth)
        ]
        about = {"path": str(self.path), "engine": self.header.engine, "texts": self.num_texts}
        counts = {"rounds": self.num_rounds, "engine_rounds": self.num_told}
        return {**about, **counts, "why_no_trace": self.why_no_trace or None, "rows": rows}

    def text(self) -> str:
        """What ``simlab import`` prints."""
        header, ranks = self.header, min(_SHOWN_RANKS, self.header.top_k)
        size = f"{self.num_rounds:,} roots ({header.roots}) of {self.num_texts:,} texts"
        first = f"candidates {self.path}, written by {header.engine}: {header.drafter} for {header.target}, {size}"
        cells = [
            ("depth", "roots", *(f"rank {rank}" for rank in range(ranks)), "claimed", "any rank", "engine accepted")
        ]
        for depth in range(header.depth):
            reached = int(self.num_reached[depth])
            shares = self.right[depth] / reached if reached else np.full(header.top_k, np.nan)
            claimed = self.claimed[depth][0] if reached else np.nan
            engine = self.accepted[depth] / self.num_told if self.num_told else np.nan
            shown = [number(100 * float(share), 1) for share in (*shares[:ranks], claimed, shares.sum(), engine)]
            cells.append((str(depth + 1), f"{reached:,}", *shown))
        mean = self.accepted.sum() / max(self.num_told, 1)
        many = f" ({self.num_told:,} rounds, {mean:.2f} tokens each)" if self.num_told else ""
        notes = (
            "rank r: how often the candidate of that rank is the text's own token at this depth, in %, whatever stands "
            "before it. claimed: the mean probability of the first, in %"
            f"{'' if header.normalised == OVER_VOCABULARY else ', over the listed candidates alone'}. engine accepted: "
            "of the rounds that say it, those that accepted so many tokens or more, in %"
            f"{many}."
        )
        last = (
            f"No trace can be made of it: {self.why_no_trace}."
            if self.why_no_trace
            else "With --out DIR it becomes a trace."
        )
        table = aligned(cells, [True] + [False] * (len(cells[0]) - 1))
        return "\n\n".join([within_width(first), table, within_width(notes), within_width(last)])


@dataclass(frozen=True, eq=False, repr=False)
class ImportedTrace(StudyResult):
    """A trace that was made of a file of candidates."""

    path: Path
    trace: Trace

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        trace = self.trace
        row = {
            "trace": trace.location,
            "from": str(self.path),
            "text_id": trace.text_id,
            "draft_ids": dict(trace.draft_ids),
            "channel_ids": dict(trace.channel_ids),
            "lacks": list(LACKS),
        }
        return {"rows": [row]}

    def text(self) -> str:
        """What ``simlab import`` prints: the trace, what it lacks, and a command that goes on with it."""
        manifest, folder = self.trace.manifest, shlex.quote(self.trace.location)
        draft_set, channels = manifest.draft_sets[DRAFT], list(manifest.channels)
        first = (
            f"Trace: {self.trace.location} (text {self.trace.text_id}), {len(self.trace.texts):,} texts, "
            f"{manifest.text_origin}."
        )
        exact = (
            f"Exact for the first {draft_set.min_width} candidates of {draft_set.depth} depths, and trees of up to "
            f"{draft_set.exact_budget} tokens{f'; channel {channels[0]}' if channels else ''}. The names of the models "
            "are the file's; simlab cannot verify them."
        )
        policies = "-p chain" if draft_set.is_chain else f"-p chain -p ddtree:budget={draft_set.exact_budget}"
        return "\n".join([within_width(first), within_width(exact), f"Next: simlab replay --trace {folder} {policies}"])


@study(ImportOptions)
def import_candidates(options: ImportOptions) -> CandidateCounts | ImportedTrace:
    """Make a trace of candidates that another engine wrote, or without ``out`` count what they say.

    Raises:
        SimlabError: the file is not as the format asks for it, or no trace can be made of it; the folder is taken.
    """
    path = Path(options.one_file("candidates"))
    unread = [name for name in (*OF_TIMINGS, *OF_METRICS, "trace", "draft_set") if name != "out"]
    options.check_unread(unread, path, "candidates of an engine")
    dump = read_candidates(path)
    reason = why_no_trace(dump)
    if options.out is None:
        return _counted(dump, reason or "")
    if reason is not None:
        raise UsageError(f"{path} becomes no trace: {reason}; without --out its counts are printed")
    return ImportedTrace(path, write_imported_trace(Path(options.out), dump))


def _counted(dump: CandidateDump, reason: str) -> CandidateCounts:
    header = dump.header
    reached, accepted, num_told = np.zeros(header.depth, np.int64), np.zeros(header.depth, np.int64), 0
    right, claimed = np.zeros((header.depth, header.top_k), np.int64), np.zeros((header.depth, header.top_k))
    for text in dump.texts:
        for round_ in text.rounds:
            if round_.accepted is not None:
                num_told += 1
                accepted[: round_.accepted] += 1
            if text.token_ids is None or round_.root is None:
                continue
            truth = text.token_ids[round_.root + 1 : round_.root + 1 + header.depth]
            reached[: len(truth)] += 1
            start = 0
            for depth, count in enumerate(round_.counts[: len(truth)]):
                part = slice(start, start + int(count))
                right[depth, :count] += round_.ids[part] == truth[depth]
                claimed[depth, :count] += np.exp(round_.log_probs[part].astype(np.float64))
                start = part.stop
    return CandidateCounts(
        path=dump.path,
        header=header,
        num_texts=len(dump.texts) if dump.has_texts else 0,
        num_rounds=sum(len(text.rounds) for text in dump.texts),
        num_reached=reached,
        right=right,
        claimed=claimed / np.maximum(reached, 1)[:, None],
        num_told=num_told,
        accepted=accepted,
        why_no_trace=reason,
    )
