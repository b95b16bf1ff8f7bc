"""Ranges of settings, searched with optuna: trial after trial, kept in a storage that its dashboard reads."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from simlab.analysis.optimize.candidate_sums import best_indices, objective_figures
from simlab.errors import SimlabError, UsageError, reason_of
from simlab.ids import content_id
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.optimize.inputs import SearchInputs
from simlab.studies.optimize.search import SearchOptions, sums_on
from simlab.studies.optimize.space import SearchEntry, SearchPoint, SearchSpace, number_within, points_at, within_cap

if TYPE_CHECKING:
    import optuna  # an extra of its own, which searches without ranges do without


TRIALS, SEED = 50, 0
"""Of each entry with ranges, where nothing else is asked for."""

_TYPED, _BEST = "typed", "best"
"""What is kept of a trial besides its numbers: the text of the entry, and its best policy."""


def check_has_trials(space: SearchSpace, trials: int | None, seed: int | None, storage: str | None) -> None:
    """Refuse what is only about trials where nothing is tried in trials."""
    asked = {"trials": trials, "seed": seed, "storage": storage}
    named = [name for name, value in asked.items() if value is not None]
    if named and not space.ranged:
        raise UsageError(
            f"--{named[0]} is about trials of ranges, and no -p has one; write it as -p presto:ngram_weight=0.0~1.0"
        )


def run_trials(
    space: SearchSpace, inputs: SearchInputs, trials: int, seed: int, storage: str | None, options: SearchOptions
) -> tuple[list[SearchPoint], int]:
    """The best policy of each trial of each entry with ranges, and how many policies were tried.

    Args:
        space: what is searched.
        inputs: the prompts to try on, and the objective.
        trials: of each entry with ranges, earlier ones included.
        seed: of the trials.
        storage: where they are kept; None: in memory.
        options: workers and bar.
    """
    best_points: dict[str, SearchPoint] = {}
    number = 0
    for index in space.ranged:
        entry = space.entries[index]

        def points(text: str, entry: int = index) -> list[SearchPoint]:
            return within_cap(points_at(text, entry, inputs), inputs)

        for typed, best in _trials(entry, _study(entry, inputs, storage), trials, seed, inputs, points, options):
            all_points = points(typed)
            number += len(all_points)
            best_points |= {point.typed: point for point in all_points if point.typed == best}
    return list(best_points.values()), number


def _study(entry: "SearchEntry", inputs: SearchInputs, storage: str | None) -> "optuna.Study":
    """One for each entry on these prompts, at these prices, by this objective."""
    with _explained(storage):
        import optuna  # noqa: PLC0415 - an extra of its own, which searches without ranges do without

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        side = inputs.dev
        asked = {
            "policy": entry.text,
            "text_id": side.trace.text_id,
            "draft_id": side.trace.draft_ids[side.draft],
            "prompts": sorted(map(list, side.prompts)),
            "objective": inputs.objective,
            "node_cap": inputs.node_cap,
            "cost_ids": [price.cost_id for price in side.prices],
        }
        name = f"{entry.text} [{content_id(asked)}]"
        study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        for key, value in asked.items():
            if key != "prompts":
                study.set_user_attr(key, value)
        return study


@contextmanager
def _explained(storage: str | None) -> Iterator[None]:
    """One sentence where optuna is not there, or cannot open its storage."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SimlabError(
            f"a range such as 0.0~1.0 is searched with optuna, and the package {error.name} is not installed; install "
            'it with: pip install "simlab[optimize]", or list values: 0.0/0.5/1.0'
        ) from error
    except Exception as error:
        if storage is None or isinstance(error, SimlabError):
            raise
        raise UsageError(
            f"--storage {storage} could not be opened ({reason_of(error)}); expected an address such as sqlite:///optimize.db"
        ) from error


def _trials(
    entry: "SearchEntry",
    study: "optuna.Study",
    trials: int,
    seed: int,
    inputs: SearchInputs,
    points: Callable[[str], list[SearchPoint]],
    options: SearchOptions,
) -> list[tuple[str, str]]:
    """The text and the best policy of each finished trial, earlier ones included."""
    import optuna  # noqa: PLC0415 - as above

    done = (optuna.trial.TrialState.COMPLETE,)
    whole = _whole_settings(entry, points)
    quiet = replace(options, progress=False)
    start = min(len(study.get_trials(deepcopy=False, states=done)), trials)
    with progress_bar(options.progress, "trials", "it", trials, initial=start) as bar:
        for number in range(start, trials):
            # A seed of its own for each trial, so that a study that was cut off goes on as it would have.
            study.sampler = optuna.samplers.TPESampler(seed=_seed(seed, number))
            trial = study.ask()
            values = {
                key: number_within(
                    low,
                    high,
                    trial.suggest_int(key, int(low), int(high))
                    if key in whole
                    else trial.suggest_float(key, low, high),
                    key in whole,
                )
                for key, (low, high) in entry.ranges.items()
            }
            typed = entry.at(values)
            made = points(typed)
            if not made:
                raise UsageError(f"`{typed}` drafts more than --node-cap {inputs.node_cap}; search smaller budgets")
            sums = sums_on(made, inputs.dev, quiet)
            figures = objective_figures(sums, inputs.objective)
            best = best_indices(sums, figures)[0]
            trial.set_user_attr(_TYPED, typed)
            trial.set_user_attr(_BEST, made[best].typed)
            study.tell(trial, float(figures[best]))
            options.note({"trials/objective": float(figures[best]), "trials/best_objective": float(study.best_value)})
            bar.update()
    finished = study.get_trials(deepcopy=False, states=done)
    return [(trial.user_attrs[_TYPED], trial.user_attrs[_BEST]) for trial in finished]


def _whole_settings(entry: "SearchEntry", points: Callable[[str], list[SearchPoint]]) -> set[str]:
    """The ranges of settings that are whole numbers; a range of these ends at whole numbers."""
    first = points(entry.ends()[0])
    if not first:
        raise UsageError(f"`{entry.text}` has no policy within --node-cap")
    settings = first[0].policies[0].settings
    return {key for key in entry.ranges if type(settings[key]) is int}


def _seed(seed: int, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4], "big")
