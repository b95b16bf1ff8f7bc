"""What policies read where models are run: prices, tables and counts, before a model is loaded."""

from dataclasses import replace
from pathlib import Path

from simlab.errors import CostError
from simlab.real_runner.targets.hub_files import repository_of
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import cost_table_of, no_prices
from simlab.traces.artefacts.cost import CostFile, find_packaged, read_cost_file
from simlab.traces.reader import Trace

_NAME_PRICES = "Measure one with `simlab profile{options}`, and give the file with --cost."


def artefacts_of_models(
    cost: Path | None, trace: Trace | None, draft: str | None, dtype: str, batch: int = 1
) -> TraceArtefacts:
    """Find the artefacts for running models: prices of a file, else those that come with simlab for the trace's models.

    Args:
        cost: the cost file that was asked for.
        trace: None where it is still to be recorded.
        draft: the drafter as it was asked for; None: the only one of the trace. That one may have any name: files move,
            and what they are is seen when they are loaded.
        dtype: in which the models run.
        batch: texts at a time; those that come with simlab are prices of one.
    """
    name = None if trace is None else _draft_set_of(trace, draft)
    options = "" if batch == 1 else f" --batch {batch}"
    file: CostFile | None = None
    if cost is not None:
        file = read_cost_file(cost)
        if file.batch != batch:
            raise CostError(
                f"{cost} was measured with batch {file.batch}, and this run has {batch}; measure just what is run "
                f"with `simlab profile{options} --out FILE`, or leave --cost out"
            )
    elif trace is not None and name is not None and batch == 1:
        kept = trace.manifest.draft_sets[name]
        file = find_packaged(trace.manifest.target, kept.model, kept.block_size, dtype)
    prices = no_prices(_NAME_PRICES.format(options=options))
    if file is not None:
        prices = replace(prices, cost=cost_table_of(file, cost))
    return TraceArtefacts(prices, trace, name)


def _draft_set_of(trace: Trace, draft: str | None) -> str | None:
    """The draft set of a drafter: the only one, else that of its name; None where that is not known."""
    sets = trace.manifest.draft_sets
    if len(sets) == 1:
        return next(iter(sets))
    repository = None if draft is None else repository_of(draft)
    named = [name for name, kept in sets.items() if repository in (name, kept.model.name)]
    return named[0] if len(named) == 1 else None
