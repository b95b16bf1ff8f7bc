"""The cost file that prices a trace: the one that was asked for, or one that comes with simlab."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.cost import PLAIN, CostTable
from simlab.errors import CostError

if TYPE_CHECKING:
    from simlab.traces.artefacts.cost import CostFile
    from simlab.traces.format.manifest import ModelInfo
    from simlab.traces.reader import Trace

_NO_FILE = "No speeds: simlab ships no prices for these models and this block; measure them with `simlab profile`."


@dataclass(frozen=True, slots=True)
class Prices:
    """What rounds cost, as a replay was asked to reckon it.

    Attributes:
        cost: None where there are no prices.
        heading: whose prices they are, in one line.
        why_none: a sentence for the reader where there are none.
        batch: texts at a time.
    """

    cost: CostTable | None
    heading: str
    why_none: str
    batch: int = 1

    @property
    def cost_id(self) -> str | None:
        """The content id of the cost file."""
        return None if self.cost is None else self.cost.cost_id


def prices_of(path: Path | None, trace: "Trace", draft: str, longest_context: int, most_drafted: int) -> Prices:
    """The prices in a cost file, or without one those that come with simlab for the models of a trace.

    A shipped file that does not reach far enough is left out, and ``why_none`` says so; a file that was
    asked for is refused.

    Args:
        path: the cost file that was asked for.
        trace: what is to be priced.
        draft: the draft set.
        longest_context: tokens before the last root of any text.
        most_drafted: tokens that a round may draft.

    Raises:
        CostError: the file cannot be read, is not finished, is of other models, or ends before
            ``longest_context``.
    """
    from simlab.traces.artefacts.cost import find_packaged, read_cost_file

    manifest = trace.manifest
    kept = manifest.draft_sets[draft]
    if path is not None:
        file = read_cost_file(path)
        check_models(path, file, trace, draft)
        cost = cost_table_of(file, path)
        cost.curve(PLAIN, longest_context)
        return _prices(file, cost, trace)
    shipped = find_packaged(manifest.target, kept.model, kept.block_size, manifest.dtype)
    if shipped is None:
        return Prices(None, "none", _NO_FILE)
    cost = cost_table_of(shipped)
    if longest_context > cost.longest_context or most_drafted > cost.most_drafted:
        return Prices(None, "none", _too_short(cost, longest_context, most_drafted))
    return _prices(shipped, cost, trace)


def cost_table_of(file: "CostFile", path: Path | None = None) -> CostTable:
    """What rounds cost by a finished cost file.

    Raises:
        CostError: the measurement is not finished.
    """
    from simlab.policies.costs.curves import cost_table

    missing = len(file.missing())
    if missing:
        where = f"the cost file {file.cost_id}" if path is None else str(path)
        raise CostError(
            f"{where} is not finished: {missing} of its {len(tuple(file.cells()))} cells were not measured; "
            f"finish it with `simlab profile --out {'FILE' if path is None else path} --resume`."
        )
    return cost_table(file.cost_id, file.contexts, file.node_counts, file.samples)


def what_if_prices(prices: Prices, change: str | None) -> Prices:
    """The prices of a machine that nobody measured; None: nothing is changed.

    Raises:
        CostError: there are no prices, or what is to be changed makes no sense.
    """
    from simlab.policies.costs.what_if import parse_what_if, what_if

    if change is None:
        return prices
    asked = parse_what_if(change)
    if prices.cost is None:
        raise CostError(f"--what-if changes prices, and there are none. {prices.why_none}")
    cost = what_if(prices.cost, asked)
    heading = f"WHAT IF {asked.label} ({cost.cost_id}), nobody's measurement, of {prices.heading}"
    return Prices(cost, heading, "", prices.batch * asked.batch)


def prices_of_batch(prices: Prices, batch: int) -> Prices:
    """The prices of so many texts at a time; of one text they are reckoned as `simlab.policies.costs.what_if` does.

    Raises:
        CostError: they are those of another number of texts, or do not reach as many tokens.
    """
    if prices.cost is None or prices.batch == batch:
        return prices
    if prices.batch != 1:
        raise CostError(
            f"--batch {batch} needs prices of {batch} texts at a time, and these are of {prices.batch}: "
            f"{prices.heading}; measure with `simlab profile --batch {batch}`, or give prices of one text"
        )
    return what_if_prices(prices, f"batch={batch}")


def _prices(file: "CostFile", cost: CostTable, trace: "Trace") -> Prices:
    threads = f"{file.threads} thread" + ("" if file.threads == 1 else "s")
    parts = [file.device, threads, file.dtype, file.execution]
    if "torch" in file.versions:
        parts.append(f"torch {file.versions['torch']}")
    if file.temperature != trace.manifest.sampling.temperature:
        parts.append(f"temperature {file.temperature:g}")
    if file.batch != 1:
        parts.append(f"speeds of each of {file.batch} texts at a time")
    return Prices(cost, f"{', '.join(parts)} (cost {cost.cost_id})", "", file.batch)


def _too_short(cost: CostTable, longest_context: int, most_drafted: int) -> str:
    return (
        f"No speeds: the shipped prices reach {cost.longest_context:,} tokens of context and {cost.most_drafted:,} "
        f"drafted tokens; this needs {longest_context:,} and {most_drafted:,}.\n"
        "Measure them with `simlab profile --contexts ... --node-counts ...`, and give the file with --cost."
    )


def check_models(path: Path, file: "CostFile", trace: "Trace", draft: str) -> None:
    """Refuse prices of other models.

    Raises:
        CostError: the file was not timed with the trace's target, drafter and block.
    """
    kept = trace.manifest.draft_sets[draft]
    if not file.fits(trace.manifest.target, kept.model, kept.block_size):
        raise CostError(
            f"{path} has prices of {_models(file.target, file.drafter, file.block_size)}; the trace is of "
            f"{_models(trace.manifest.target, kept.model, kept.block_size)}. Give a cost file of the trace's models, "
            "or make one with `simlab profile`."
        )


def _models(target: "ModelInfo", drafter: "ModelInfo", block_size: int) -> str:
    return f"{model_name(target)} with the drafter {model_name(drafter)}, block {block_size}"


def model_name(model: "ModelInfo") -> str:
    """Name and the beginning of the digest, since other weights may have the same name."""
    return f"{model.name} ({model.digest.removeprefix('sha256:')[:8]})"
