"""At which prices a confirmation predicts: those of exactly what is run, or none."""

from pathlib import Path

from simlab.errors import CostError
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.real_runner.execution.executions import EAGER
from simlab.studies.inputs.priced_policies import largest_budget
from simlab.studies.inputs.prices import Prices, check_models, no_prices, prices_for_trace
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file

_NO_PRICES = (
    "Nothing is predicted: simlab ships no latency profile for exactly these models, this machine and these settings; "
    "measure one with `simlab profile{options}`, and give the file with --cost."
)

_OTHER_PASSES = (
    "With --batch-invariant every pass has the rows of the largest budget, and no cost file was measured so: nothing "
    "is predicted."
)


def prices_for(path: Path | None, setup: ConfirmSetup) -> Prices:
    """Find the prices at which a confirmation predicts: of a file, or shipped ones; measured with just what is run.

    Passes of one fixed shape have none; a file of the models then serves the policies that read prices alone.

    Args:
        path: the file that was asked for; None: none was.
        setup: what is run.
    """
    if setup.options.batch_invariant:
        if path is not None:
            check_models(path, read_cost_file(path), setup.trace, setup.draft)
        return no_prices(_OTHER_PASSES)
    return _shipped_prices(setup) if path is None else _prices_of_file(path, setup)


def _prices_of_file(path: Path, setup: ConfirmSetup) -> Prices:
    """The prices of a file that was asked for, if it was measured with just what is run."""
    difference = setup.price_difference(read_cost_file(path))
    if difference is not None:
        raise CostError(
            f"{path} was measured with {difference}; a prediction that is to be confirmed needs a latency profile of "
            f"exactly what is run: measure one with `simlab profile{_profile_options(setup)} --out FILE`, or leave "
            "--cost out"
        )
    return prices_for_trace(path, setup.trace, setup.draft, setup.options.limit)


def _shipped_prices(setup: ConfirmSetup) -> Prices:
    """The prices that come with simlab and were measured with just what is run; or none, and why."""
    fitting = [one for one in packaged_cost_files() if setup.price_difference(read_cost_file(one)) is None]
    if not fitting:
        return no_prices(_NO_PRICES.format(options=_profile_options(setup)))
    try:
        prices = prices_for_trace(fitting[0], setup.trace, setup.draft, setup.options.limit)
    except CostError as error:
        return no_prices(f"Nothing is predicted: {error}")
    most = largest_budget(setup.policies, setup.draft_set.depth)
    if prices.cost is not None and most > prices.cost.most_drafted:
        return no_prices(_too_small(most, prices.cost.most_drafted))
    return prices


def _profile_options(setup: ConfirmSetup) -> str:
    """What `simlab profile` of just this run is to be given, where that is not what it has anyway."""
    options = setup.options
    batch = "" if options.batch == 1 else f" --batch {options.batch}"
    return batch if options.execution == EAGER else f"{batch} --execution {options.execution}"


def _too_small(most: int, priced: int) -> str:
    """Why shipped prices do not do: policies may draft more than was priced."""
    return (
        f"Nothing is predicted: a policy may draft {most:,} tokens, and the packaged latency profile reaches "
        f"{priced:,}; measure more with `simlab profile --node-counts ...`, and give the file with --cost."
    )
