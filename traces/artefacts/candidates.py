"""Candidates that another engine wrote of its own rounds: `simlab-candidates`, JSON lines, version 1.

``docs/reference/candidates.md`` says what stands in the file, and what each kind of file may claim.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.errors import TraceError
from simlab.grid import LOWEST, to_grid
from simlab.limits import MOST_COUNT, check_memory
from simlab.traces.format.checks import LOG_PROB_TOLERANCE, MASS_TOLERANCE
from simlab.traces.format.documents import JsonFields, check_version, json_fields, value_of
from simlab.traces.format.frames import STOP_REASONS
from simlab.traces.format.manifest_entries import MOST_DEPTH, MOST_KEPT, MOST_TOKENS
from simlab.untrusted.json_text import open_file

FORMAT, VERSION = "simlab-candidates", 1
ALL_ROOTS, VISITED_ROOTS = ROOTS = ("all", "visited")
OVER_VOCABULARY, OVER_KEPT = NORMALISED = ("vocabulary", "kept")
BEHIND_ROOT, BEHIND_CHAIN = BEHIND = ("root", "chain")

MOST_LINE_BYTES = 64 << 20
"""A longer line is refused; a round of 16 depths with 64 candidates and their pairs takes about 1.5 MB."""

MOST_ABOVE = 255
"""The most tokens of a depth below which pairs stand, as a channel of transitions has them."""

_AS_OBJECTS = 12
"""A line takes so many times as much memory as Python's objects."""

_AS_ARRAYS = 8
"""The arrays of a whole file take at most so many times as much as the file."""


@dataclass(frozen=True, slots=True)
class DumpHeader:
    """The first line: by whom the candidates are, and what they are.

    Attributes:
        engine, target, drafter: names, as the engine has them.
        vocab_size: of the target; every id is below it.
        depth: D, positions drafted ahead.
        top_k: candidates of a depth, at most; exact for ranks below it.
        block: positions of the drafter's block, the root's included.
        roots: `ALL_ROOTS`: every position of each text; `VISITED_ROOTS`: those at which the engine began a round.
        normalised: whether probabilities are over the drafter's whole vocabulary, or over the listed candidates.
        behind: `BEHIND_ROOT`: one law a depth, of the root alone; `BEHIND_CHAIN`: each depth's behind the first
            candidates of those above.
        root_seen: whether the drafter read the root's own token.
        temperature: of the target; 0: greedy. None: not stated.
        sampling: how the target's tokens were drawn besides; None: not at all, or not stated.
        noise: tokens in place of the masks of a target that drafts for itself, as ``--noise`` is typed.
    """

    engine: str
    target: str
    drafter: str
    vocab_size: int
    depth: int
    top_k: int
    block: int
    roots: str
    normalised: str
    behind: str
    root_seen: bool
    temperature: float | None
    sampling: Mapping[str, object] | None
    noise: str | None

    def __post_init__(self) -> None:
        sizes = {"vocab_size": MOST_TOKENS, "depth": MOST_DEPTH, "top_k": MOST_KEPT, "block": MOST_COUNT}
        for name, most in sizes.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name!r} must be from 1 to {most:,}; got {getattr(self, name):,}")
        for name, known in (("roots", ROOTS), ("normalised", NORMALISED), ("behind", BEHIND)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name!r} must be {' or '.join(known)}; got {getattr(self, name)!r:.40}")
        if not (self.engine and self.target and self.drafter):
            raise ValueError("'engine', 'target' and 'drafter' must each be a name")


@dataclass(frozen=True, slots=True, eq=False)
class DumpedRound:
    """The candidates at one root.

    Attributes:
        where: file and line, for messages.
        root: its place in the text; None where the file has no texts.
        counts: int32 ``[D]``, candidates of each depth.
        ids: int32 ``[sum K]``, depth after depth, by log-prob descending, then id ascending.
        log_probs: float32 ``[sum K]``, on the grid.
        outside: float32 ``[D]``, log of the mass that is not listed, from -255 to 0.
        pairs: float64 ``[1 + (D - 1) K, K]``, of a candidate given the one above, nats, in the order of ``ids``; None
            where there are none.
        drafted, accepted: tokens of the engine's own round; None where it says nothing of them.
    """

    where: str
    root: int | None
    counts: Ints
    ids: Ints
    log_probs: Floats
    outside: Floats
    pairs: Doubles | None
    drafted: int | None
    accepted: int | None


@dataclass(frozen=True, slots=True, eq=False)
class DumpedText:
    """One text and the rounds along it, at rising roots.

    Attributes:
        where: file and line, for messages.
        token_ids: int32 ``[T]``; None where the file has no texts.
        prompt_ids: int32 ``[P]``.
        prompt: what its samples and turns share, so that an interval counts them as one; empty: texts of equal
            ``prompt_ids`` are of one prompt.
        stop: one of `STOP_REASONS`.
    """

    where: str
    dataset: str = ""
    prompt_ids: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    token_ids: Ints | None = None
    stop: str = ""
    prompt: str = ""
    rounds: list[DumpedRound] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class CandidateDump:
    """Everything that a file of candidates says.

    Attributes:
        path: of the file.
        texts: as the file numbers them; where it has no lines of texts, without tokens.
    """

    path: Path
    header: DumpHeader
    texts: tuple[DumpedText, ...]

    @property
    def has_texts(self) -> bool:
        """Whether the file has the texts themselves, and so what the target really said."""
        return all(text.token_ids is not None for text in self.texts)


def is_candidate_dump(beginning: str) -> bool:
    """Whether a file with this beginning is such a file: its first line says so."""
    line = beginning.lstrip().split("\n", 1)[0]
    return line.startswith("{") and f'"{FORMAT}"' in line


def read_candidates(path: Path) -> CandidateDump:
    """Read a file of candidates whole, and check each line.

    Raises:
        TraceError: it cannot be read, or a line is not as the format asks for it; says which, and why.
        TooLargeError: it would not fit into memory.
    """
    try:
        lines = _lines(path)
        header = _header(path, *next(lines, (1, b"")))
        texts: dict[int, DumpedText] = {}
        for number, line in lines:
            _take(texts, header, _fields(line, f"{path}, line {number}"))
    except OSError as error:
        raise TraceError(f"{path} could not be read ({error.strerror or error}); name a file of candidates.") from error
    if not any(text.rounds for text in texts.values()):
        raise TraceError(
            f"{path} holds no line of a round, with 'root', 'ids' and 'log_probs'; there is nothing to read."
        )
    if len({text.token_ids is None for text in texts.values()}) > 1:
        raise TraceError(f"{path} holds lines of texts, but not of each text that has rounds; write one for each.")
    return CandidateDump(path, header, tuple(texts.values()))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open_file(path) as file:
        size = path.stat().st_size
        check_memory(_AS_ARRAYS * size + _AS_OBJECTS * min(size, MOST_LINE_BYTES), f"reading {path}")
        for number in range(1, MOST_COUNT):
            line = file.readline(MOST_LINE_BYTES + 1)
            if len(line) > MOST_LINE_BYTES:
                raise TraceError(
                    f"{path}, line {number} has more than {MOST_LINE_BYTES:,} bytes; write a line a round."
                )
            if not line:
                return
            if line.strip():
                yield number, line


def _fields(line: bytes, where: str) -> JsonFields:
    try:
        return json_fields(line, where)
    except ValueError as error:
        raise TraceError(f"{where}: expected one JSON object a line; {error}.") from error


def _header(path: Path, number: int, line: bytes) -> DumpHeader:
    fields = _fields(line, f"{path}, line {number}")
    if fields.values.get("format") != FORMAT:
        raise TraceError(f"{fields.where}: expected the first line of a file of candidates, with format {FORMAT!r}.")
    check_version(fields, VERSION, "docs/reference/candidates.md says how such a file is written")
    missing = [name for name in DumpHeader.__slots__ if name not in fields.values]
    if missing:
        _refuse(
            fields, f"expected the key {missing[0]!r}, which is missing; write null where the engine does not know it"
        )
    try:
        return value_of(DumpHeader, fields)
    except ValueError as error:
        raise TraceError(f"{fields.where}: {error}.") from error


def _refuse(fields: JsonFields, words: str) -> NoReturn:
    raise TraceError(f"{fields.where}: {words}.")


def _take(texts: dict[int, DumpedText], header: DumpHeader, fields: JsonFields) -> None:
    """Add what one line says."""
    if "token_ids" in fields.values:
        number = fields.integer("text")
        if number in texts:
            _refuse(fields, f"text {number} has a line already, or rounds above it; write it once, before its rounds")
        texts[number] = _text(header, fields)
    elif "ids" in fields.values:
        number = fields.integer("text") if "text" in fields.values else 0
        text = texts.setdefault(number, DumpedText(fields.where))
        text.rounds.append(_round(header, text, fields))
    else:
        _refuse(fields, "expected a line of a text, with 'token_ids', or of a round, with 'ids'")


def _text(header: DumpHeader, fields: JsonFields) -> DumpedText:
    text = DumpedText(
        fields.where,
        fields.text("dataset"),
        _ids(header, fields, "prompt_ids"),
        _ids(header, fields, "token_ids"),
        fields.text("stop"),
        fields.text("prompt") if "prompt" in fields.values else "",
    )
    if text.stop not in STOP_REASONS:
        _refuse(fields, f"'stop' must be {' or '.join(STOP_REASONS)}; got {text.stop!r:.40}")
    if text.token_ids is None or not len(text.token_ids):
        _refuse(fields, "'token_ids' is empty; a text has at least one token")
    return text


def _ids(header: DumpHeader, fields: JsonFields, key: str) -> Ints:
    return _within(header, fields, key, fields.integers(key))


def _within(header: DumpHeader, fields: JsonFields, key: str, values: object) -> Ints:
    ids = np.asarray(values, np.int64)
    if ids.size and not (ids.min() >= 0 and ids.max() < header.vocab_size):
        outside = int(ids[(ids < 0) | (ids >= header.vocab_size)][0])
        _refuse(fields, f"{key!r} holds {outside}, and the header says vocab_size {header.vocab_size:,}")
    return ids.astype(np.int32)


def _round(header: DumpHeader, text: DumpedText, fields: JsonFields) -> DumpedRound:
    counts, listed = _table(header, fields, "ids", (int,))
    others, log_probs = _table(header, fields, "log_probs", (int, float))
    if not np.array_equal(counts, others):
        _refuse(fields, "'ids' and 'log_probs' must list as many candidates at each depth")
    ids = _within(header, fields, "ids", listed)
    segment: Longs = np.repeat(np.arange(header.depth), counts)
    values = _falling(fields, segment, ids, np.asarray(log_probs, np.float64))
    outside = _outside(header, fields, np.bincount(segment, np.exp(values), header.depth).astype(np.float64))
    on_grid = to_grid(values)
    # Numbers that differ may meet on the grid, where the smaller id stands first.
    order: Longs = np.lexsort((ids, -on_grid, segment))
    pairs = _pairs(header, fields, counts, order) if fields.values.get("pairs") is not None else None
    round_ = DumpedRound(
        where=fields.where,
        root=None if text.token_ids is None else fields.integer("root"),
        counts=counts,
        ids=ids[order],
        log_probs=on_grid[order],
        outside=outside,
        pairs=pairs,
        drafted=_count(fields, "drafted"),
        accepted=_count(fields, "accepted"),
    )
    _check_place(header, text, round_, fields)
    return round_


def _table(header: DumpHeader, fields: JsonFields, key: str, kinds: tuple[type, ...]) -> tuple[Ints, list[object]]:
    """The numbers of one list a depth, int32 ``[D]``, and all of them."""
    rows = fields.values.get(key)
    if not isinstance(rows, list) or len(rows) != header.depth or not all(isinstance(row, list) for row in rows):
        _refuse(fields, f"{key!r} must be {header.depth} lists, one a depth")
    counts = np.array([len(row) for row in rows], np.int32)
    if counts.min() < 1 or counts.max() > header.top_k:
        _refuse(fields, f"{key!r} must list from 1 to {header.top_k} candidates at each depth, as top_k says")
    flat = [value for row in rows for value in row]
    if not all(type(value) in kinds for value in flat):
        _refuse(fields, f"{key!r} must hold {'whole ' if kinds == (int,) else ''}numbers alone")
    return counts, flat


def _falling(fields: JsonFields, segment: Longs, ids: Ints, values: Doubles) -> Doubles:
    if values.max() > LOG_PROB_TOLERANCE:
        _refuse(fields, f"'log_probs' holds {values.max():g}; natural logarithms of probabilities are at most 0")
    same = segment[1:] == segment[:-1]
    if (same & (np.diff(values) > 0)).any():
        depth = int(segment[1:][same & (np.diff(values) > 0)][0]) + 1
        _refuse(fields, f"'log_probs' rise within depth {depth}; list the most probable candidate first")
    if len(np.unique(segment * MOST_TOKENS + ids)) < len(ids):
        _refuse(fields, "'ids' lists a candidate twice at one depth")
    return np.minimum(values, 0.0)


def _outside(header: DumpHeader, fields: JsonFields, mass: Doubles) -> Floats:
    """The log of the mass that is not listed, checked against what the file says of it."""
    if fields.values.get("outside") is not None:
        outside = np.asarray(fields.numbers("outside"))
        if outside.shape != mass.shape or not ((outside >= 0) & (outside <= 1 + MASS_TOLERANCE)).all():
            _refuse(fields, f"'outside' must be {header.depth} shares from 0 to 1, the mass that is not listed")
    else:
        outside = np.maximum(1 - mass, 0) if header.normalised == OVER_VOCABULARY else np.zeros_like(mass)
    wrong = np.abs(mass + outside - 1) > MASS_TOLERANCE
    if wrong.any():
        depth = int(np.argmax(wrong))
        _refuse(
            fields,
            f"at depth {depth + 1} listed and outside mass add up to {mass[depth] + outside[depth]:.4f}, not 1; "
            f"log-probs must be natural logarithms, normalised over the {header.normalised}",
        )
    logs: Floats = np.log(np.maximum(outside, np.exp(LOWEST))).clip(LOWEST, 0).astype(np.float32)
    return logs


def _pairs(header: DumpHeader, fields: JsonFields, counts: Ints, order: Longs) -> Doubles:
    """Scores of each candidate given each one of the depth above, in the order of the candidates."""
    top_k, rows = header.top_k, fields.values["pairs"]
    if top_k > MOST_ABOVE or (counts != top_k).any():
        _refuse(fields, f"'pairs' needs as many candidates at every depth as top_k says, {MOST_ABOVE} at most")
    depths = [depth if isinstance(depth, list) else [] for depth in rows] if isinstance(rows, list) else []
    flat = [row for depth in depths for row in depth]
    is_table = [len(depth) for depth in depths] == [1] + [top_k] * (header.depth - 1)
    if not is_table or not all(isinstance(row, list) and len(row) == top_k for row in flat):
        _refuse(fields, f"'pairs' must be {header.depth} tables: 1 row of {top_k} numbers, then {top_k} rows each")
    if not all(type(value) in (int, float) for row in flat for value in row):
        _refuse(fields, "'pairs' must hold numbers alone")
    scores = np.asarray(flat, np.float64)
    mass = np.exp(scores).sum(axis=1)
    if scores.max() > LOG_PROB_TOLERANCE or mass.max() > 1 + MASS_TOLERANCE:
        _refuse(
            fields, f"a row of 'pairs' has the mass {mass.max():.4f}; natural logarithms of a law add up to at most 1"
        )
    ranks = order.reshape(header.depth, top_k) - np.arange(header.depth)[:, None] * top_k
    above = np.concatenate([[0], *(1 + top_k * depth + ranks[depth] for depth in range(header.depth - 1))])
    beside = np.concatenate([ranks[:1], np.repeat(ranks[1:], top_k, axis=0)])
    return np.take_along_axis(np.minimum(scores, 0.0)[above.astype(np.int64)], beside, axis=1)


def _count(fields: JsonFields, key: str) -> int | None:
    value = fields.optional_integer(key) if key in fields.values else None
    if value is not None and not 0 <= value <= MOST_COUNT:
        _refuse(fields, f"{key!r} must be from 0 to {MOST_COUNT:,}; got {value:,}")
    return value


def _check_place(header: DumpHeader, text: DumpedText, round_: DumpedRound, fields: JsonFields) -> None:
    """Refuse a root that is no place of its text, and a count of accepted tokens that its tokens contradict."""
    accepted = round_.accepted or 0
    if accepted > min(header.depth, header.depth if round_.drafted is None else round_.drafted):
        _refuse(
            fields, f"'accepted' is {accepted}, more than 'drafted' or 'depth' is; no round accepts more than it drafts"
        )
    if text.token_ids is None or round_.root is None:
        return
    last, before = len(text.token_ids) - 1, text.rounds[-1] if text.rounds else None
    if not 0 <= round_.root < last:
        _refuse(
            fields, f"'root' is {round_.root}, and the text has roots from 0 to {last - 1}: all tokens but the last"
        )
    if before is not None and before.root is not None and round_.root <= before.root:
        _refuse(fields, f"'root' is {round_.root} behind {before.root}; roots of a text stand once, in rising order")
    if header.roots == VISITED_ROOTS and before is not None and before.root is not None:
        begun = before.root + (before.accepted or 0)
        if round_.root <= begun:
            _refuse(fields, f"'root' is {round_.root}, which the round before accepted: 'accepted' is at odds with it")
    if accepted > last - round_.root:
        _refuse(
            fields,
            f"'accepted' is {accepted}, and behind the root {last - round_.root} tokens stand in 'token_ids'; count "
            "those alone that do",
        )
    starts = np.concatenate([[0], np.cumsum(round_.counts)])
    for depth in range(accepted):
        listed = round_.ids[starts[depth] : starts[depth + 1]]
        if text.token_ids[round_.root + depth + 1] not in (listed[:1] if header.behind == BEHIND_CHAIN else listed):
            _refuse(
                fields,
                f"'accepted' is {accepted}, and token {round_.root + depth + 1} of 'token_ids' is no candidate of "
                f"depth {depth + 1}; one of them is of another round",
            )
