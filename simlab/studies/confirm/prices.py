"""At which prices a confirmation predicts: those of just what is run, or none."""

from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import CostError
from simlab.studies.inputs.asked import largest_budget, replay_prices
from simlab.studies.inputs.prices import Prices, check_models

if TYPE_CHECKING:
    from simlab.real_runner.confirm.setup import ConfirmSetup

_NO_PRICES = (
    "Nothing is predicted: simlab ships no prices for just these models, this machine and these settings; measure them "
    "with `simlab profile{options}`, and give the file with --cost."
)

_OTHER_PASSES = (
    "With --batch-invariant every pass has the rows of the largest budget, and no cost file was measured so: nothing "
    "is predicted."
)


def prices_for(path: Path | None, setup: "ConfirmSetup") -> Prices:
    """The prices of a file that was measured with just what is run, or shipped ones of that kind.

    Passes of one fixed shape have none; a file of the models then serves the policies that read prices alone.

    Args:
        path: the file that was asked for; None: none was.
        setup: what is run.

    Raises:
        CostError: the file that was asked for was measured with anything else, or does not reach far enough.
    """
    from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file

    asked = (setup.trace, setup.draft, setup.policies, setup.options.limit)
    if setup.options.batch_invariant:
        if path is not None:
            check_models(path, read_cost_file(path), setup.trace, setup.draft)
        return Prices(None, "none", _OTHER_PASSES)
    if path is not None:
        found = setup.price_difference(read_cost_file(path))
        if found is not None:
            raise CostError(
                f"{path} was measured with {found}; a prediction that is to be confirmed needs prices of just what is "
                f"run: measure them with `simlab profile{_profile_options(setup)} --out FILE`, or leave --cost out"
            )
        return replay_prices(path, *asked)
    fitting = [one for one in packaged_cost_files() if setup.price_difference(read_cost_file(one)) is None]
    if not fitting:
        return Prices(None, "none", _NO_PRICES.format(options=_profile_options(setup)))
    try:
        prices = replay_prices(fitting[0], *asked)
    except CostError as error:
        return Prices(None, "none", f"Nothing is predicted: {error}")
    most = largest_budget(setup.policies, setup.draft_set.depth)
    if prices.cost is not None and most > prices.cost.most_drafted:
        return Prices(None, "none", _too_small(most, prices.cost.most_drafted))
    return prices


def _profile_options(setup: "ConfirmSetup") -> str:
    """What a profile of just this run is to be given, where that is not what it has anyway."""
    from simlab.real_runner.execution.executions import EAGER

    options = setup.options
    batch = "" if options.batch == 1 else f" --batch {options.batch}"
    return batch if options.execution == EAGER else f"{batch} --execution {options.execution}"


def _too_small(most: int, priced: int) -> str:
    return (
        f"Nothing is predicted: a policy may draft {most:,} tokens, and the shipped prices reach {priced:,}; measure "
        "more with `simlab profile --node-counts ...`, and give the file with --cost."
    )
