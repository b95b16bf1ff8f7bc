"""The files of github.com/adixg/vllm-specdecode-cost-model: passes by tokens and context, and rounds of serving."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from simlab.analysis.released.files import ReleasedFiles
from simlab.arrays import Bools, Doubles
from simlab.errors import SimlabError

README = "README.md"
EAGER, CAPTURED = "results/h100_e1.json", "results/h100_e5.json"
SERVED, LOG = "results/minicpm_h100_dspark_k_spec7.json", "logs/calibrated-ab-5865211.out"
FILES = (README, EAGER, CAPTURED, SERVED, LOG)
"""What is read; the 558 kB of single decisions behind the log, other runs, and passes of a laptop are not."""

_DECISIONS = re.compile(r"^ *(stock|corrected): n=(\d+),", re.MULTILINE)
_ROUND = re.compile(r"^ *(\d+) +(stock|corrected) +[\d.]+ +(\d+) +([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PassCell:
    """Passes of one size at one context.

    Attributes:
        sweep: the file that they are of.
        tokens: of the pass.
        requests: whose tokens these are.
        context: tokens that each request has before.
        captured: whether a CUDA graph was replayed.
        samples_ms: of each pass.
        profiled_ms: what vLLM's profile, at its one context, says of this size; NaN where it was not asked.
    """

    sweep: str
    tokens: int
    requests: int
    context: int
    captured: bool
    samples_ms: tuple[float, ...]
    profiled_ms: float = math.nan

    @property
    def median_ms(self) -> float:
        """Their summary of the samples."""
        return median(self.samples_ms)

    @property
    def context_tokens(self) -> int:
        """Tokens of all requests that the pass reads."""
        return self.requests * self.context


@dataclass(frozen=True, slots=True)
class PairedRounds:
    """Rounds of serving the same prompts at vLLM's price and at the corrected one, in turn.

    Attributes:
        stock: float64 ``[rounds]``, tokens per second at vLLM's price.
        corrected: float64 ``[rounds]``, at the corrected one, of the same rounds.
        stock_first: bool ``[rounds]``, which of them began.
    """

    stock: Doubles
    corrected: Doubles
    stock_first: Bools

    @property
    def percent(self) -> Doubles:
        """By how much the corrected price is faster, in per cent, float64 ``[rounds]``."""
        return 100 * (self.corrected / self.stock - 1)


def read_sweep(files: ReleasedFiles, name: str) -> list[PassCell]:
    """The cells of a sweep of sizes and contexts.

    Raises:
        SimlabError: it holds something else.
    """
    found = _object(files, name)
    limit, rows = found.get("cudagraph_limit"), found.get("rows")
    if not isinstance(limit, int) or not isinstance(rows, list):
        raise SimlabError(f"{name} has no sweep: expected cudagraph_limit and rows")
    cells = []
    for row in rows:
        tokens = _whole(row, "num_tokens", name)
        samples, profiled = _samples(row, name), _number(row, "predicted_ms", name)
        requests, context = _whole(row, "num_reqs", name), _whole(row, "context_len", name)
        cells.append(PassCell(name, tokens, requests, context, tokens <= limit, samples, profiled))
    return cells


def read_served(files: ReleasedFiles) -> list[PassCell]:
    """The cells that the serving engine itself timed before the paired rounds; all are captured sizes.

    Raises:
        SimlabError: it holds something else.
    """
    rows = _object(files, SERVED).get("rows")
    if not isinstance(rows, list):
        raise SimlabError(f"{SERVED} has no rows")
    return [
        PassCell(
            SERVED,
            _whole(row, "num_tokens", SERVED),
            _whole(row, "num_reqs", SERVED),
            _whole(row, "effective_context_len", SERVED),
            True,
            _samples(row, SERVED),
        )
        for row in rows
    ]


def read_rounds(files: ReleasedFiles) -> PairedRounds:
    """The rounds as the log prints them, to a tenth of a token per second.

    Raises:
        SimlabError: a round lacks one of the two, or wrote another number of tokens.
    """
    speeds: dict[int, dict[str, float]] = {}
    tokens = set()
    for number, mode, written, speed in _ROUND.findall(files.text(LOG)):
        speeds.setdefault(int(number), {})[mode] = float(speed)
        tokens.add(written)
    if not speeds or any(len(one) != 2 for one in speeds.values()) or len(tokens) != 1:
        raise SimlabError(f"{LOG} has no paired rounds of equally many tokens; expected both prices in each round")
    stock, corrected = (np.array([one[mode] for one in speeds.values()]) for mode in ("stock", "corrected"))
    return PairedRounds(stock, corrected, np.array([next(iter(one)) == "stock" for one in speeds.values()]))


def read_decisions(files: ReleasedFiles) -> dict[str, int]:
    """How many decisions on a pass the log counts at each price, ``stock`` and ``corrected``, over all rounds.

    Raises:
        SimlabError: it does not count them.
    """
    found = {mode: int(number) for mode, number in _DECISIONS.findall(files.text(LOG))}
    if len(found) != 2:
        raise SimlabError(f"{LOG} does not count the decisions at both prices")
    return found


def _object(files: ReleasedFiles, name: str) -> Mapping[str, object]:
    found = files.value(name)
    if not isinstance(found, dict):
        raise SimlabError(f"{name}: expected a JSON object; got {type(found).__name__}")
    return found


def _whole(row: Mapping[str, object], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or value < 0:
        raise SimlabError(f"{where}: expected a whole number as {name}; got {value!r}")
    return value


def _number(row: Mapping[str, object], name: str, where: str) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or value <= 0:
        raise SimlabError(f"{where}: expected a number above 0 as {name}; got {value!r}")
    return float(value)


def _samples(row: Mapping[str, object], where: str) -> tuple[float, ...]:
    values = row.get("forward_ms")
    if not isinstance(values, list) or not values or not all(isinstance(one, float) and one > 0 for one in values):
        raise SimlabError(f"{where}: expected times of passes as forward_ms; got {str(values)[:40]}")
    return tuple(values)
