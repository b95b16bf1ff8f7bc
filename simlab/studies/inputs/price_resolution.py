"""How well the prices of a cost file are known, in a line for a reader and in numbers, and what would tell more."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from simlab.policies.costs.cell_prices import (
    few_visits,
    fewest_samples,
    neighbour_half_widths,
    ratio_half_widths,
    samples_needed,
)
from simlab.traces.artefacts.cost import CostFile

WANTED = 0.01
"""Prices are asked to be known to this share."""


@dataclass(frozen=True, slots=True)
class PriceResolution:
    """Ratios of prices, and the half-widths of their 95 % intervals; nan where a cell was visited once.

    Attributes:
        of: what the ratios are, for a reader.
        median: of the half-widths, a share.
        widest: of them.
        samples: of a stage in the cell that has the fewest.
        needed: so many would make the median `WANTED`, about; None: not known.
        needed_everywhere: so many the widest.
        may_go_on: whether `simlab profile` adds samples to such a file; else they go into a new one.
        is_imported: whether samples are rows of timings from elsewhere, to which their owner adds some.
    """

    of: str
    median: float
    widest: float
    samples: int
    needed: int | None
    needed_everywhere: int | None
    may_go_on: bool = True
    is_imported: bool = False

    def row(self) -> dict[str, str | float | int | None]:
        """Plain values, as a script reads them; null where not known."""
        known = not math.isnan(self.median)
        return {
            "median_half_width_share": self.median if known else None,
            "widest_half_width_share": self.widest if known else None,
            "samples": self.samples,
            "wanted_half_width_share": WANTED,
            "samples_needed": self.needed,
            "samples_needed_everywhere": self.needed_everywhere,
            "command": None if self.needed is None else self._command(self.needed),
        }

    def lines(self) -> tuple[str, str, str]:
        """How well they are known, what would tell more, and the command for it, which must not be wrapped."""
        if self.needed is None:
            command = self._command(2 * max(self.samples, 1))
            return f"{self.of}: how noisy it is, one visit to a cell does not tell", "measure again:", f"`{command}`"
        known = f"±{100 * self.median:.1f} % (median; widest {100 * self.widest:.1f} %; 95 %)"
        needed = f"±{100 * WANTED:.0f} % takes about {self.needed:,} ({self.needed_everywhere:,} for the widest)"
        return (
            f"{self.of}: known to {known}, {self.samples} samples a cell",
            f"{needed}:",
            f"`{self._command(self.needed)}`",
        )

    def _command(self, samples: int) -> str:
        if self.is_imported:
            return f"simlab import TIMINGS --out NEW_FILE  # with {samples} rows of each size"
        file = "FILE --resume" if self.may_go_on else "NEW_FILE"
        return f"simlab profile --out {file} --repeats {samples}"


def step_resolution(file: CostFile) -> PriceResolution:
    """How well a round's price is known beside that of the size before, which tells valleys from noise."""
    widths = neighbour_half_widths(file.samples, file.visits).values()
    return _known(file, "a round over that of the size before", widths)


def speedup_resolution(file: CostFile) -> PriceResolution:
    """How well a round's price is known beside autoregressive decoding, which is what a speedup depends on."""
    return _known(file, "a round over autoregressive decoding", ratio_half_widths(file.samples, file.visits).values())


def _known(file: CostFile, of: str, half_widths: Iterable[float]) -> PriceResolution:
    widths, samples = sorted(half_widths), fewest_samples(file.samples)
    may_go_on = file.visits.paired and not file.notes
    if not widths:
        return PriceResolution(of, math.nan, math.nan, samples, None, None, may_go_on, file.is_imported)
    median, widest = statistics.median(widths), widths[-1]
    # With many visits the intervals are narrower by this too.
    few = few_visits(samples // file.visits.rounds)
    needed, everywhere = (
        _rounded(samples_needed(value / few, samples, WANTED, file.visits)) for value in (median, widest)
    )
    return PriceResolution(of, median, widest, samples, needed, everywhere, may_go_on, file.is_imported)


def _rounded(number: int) -> int:
    """Two digits, upwards: more is not known."""
    step: int = 10 ** max(len(str(number)) - 2, 0)
    return -(-number // step) * step
