"""What ``simlab optimize`` chose, on disk: the policy, on which prompts, and what to confirm with real models."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from simlab.errors import TraceError
from simlab.traces.format.documents import (
    DocumentKind,
    Json,
    JsonFields,
    check_digest,
    read_document,
    value_of,
    with_digest,
)
from simlab.traces.format.files import write_beside

FORMAT = "simlab-optimum"
FORMAT_VERSION = 1
"""The format of choices that this simlab writes, and the newest that it reads."""

OBJECTIVES = ("tokens_per_s", "acceptance_length", "worst_case")
"""Tokens per second at one machine's prices, acceptance length at a node cap, the worst speedup over several prices."""

KIND = DocumentKind(FORMAT, FORMAT_VERSION, "choice of policies", "`simlab optimize --out FILE` makes one")

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A policy as a person types it, and its content id."""

    policy: str
    policy_id: str


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Prompts that something was read from.

    Attributes:
        text_id: of the trace's texts.
        draft_id: of the draft set.
        names: dataset and name of each prompt; turns and samples of one count once.
    """

    text_id: str
    draft_id: str
    names: frozenset[tuple[str, str]]

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("expected at least one prompt; got none")

    @property
    def prompts(self) -> int:
        """Number of prompts; turns and samples of one count once."""
        return len(self.names)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the prompts' datasets, sorted."""
        return tuple(sorted({dataset for dataset, _ in self.names}))

    def to_json(self) -> Json:
        """The JSON value in the file; names are listed by dataset."""
        by_dataset = {
            wanted: sorted(name for dataset, name in self.names if dataset == wanted) for wanted in self.datasets
        }
        counts: Json = {"prompts": self.prompts, "datasets": list(self.datasets), "names": by_dataset}
        return {"text_id": self.text_id, "draft_id": self.draft_id, **counts}


@dataclass(frozen=True, slots=True)
class Optimum:
    """A choice among many policies, and what it came to on other prompts.

    Attributes:
        simlab_version: that made it.
        objective: one of `OBJECTIVES`.
        node_cap: drafted tokens of a round, at most; None: no limit.
        cost_ids: the prices of speeds, and of policies that read prices; empty where there were none.
        chosen_on: the prompts on which the policies were searched.
        reported_on: the prompts on which the figures were read, once.
        searched: how many policies.
        winner: the chosen policy where it beats its rivals on the prompts of the report; None: no winner.
        best: the chosen policy, winner or not.
        verdict: one sentence.
        optimism: flat figures of what choosing on the prompts of the report would have claimed.
        run: policies to run with real models: the best, its closest rivals, the chain.
        rows: flat figures of each finalist on both sets of prompts.
        share_of_draws_best: share of the draws of the prices in which the chosen policy is the best of the finalists
            on the prompts of the choice; None where the noise of prices is not known, or they play no part.
    """

    simlab_version: str
    objective: str
    node_cap: int | None
    cost_ids: tuple[str, ...]
    chosen_on: PromptSource
    reported_on: PromptSource
    searched: int
    winner: ChosenPolicy | None
    best: ChosenPolicy
    verdict: str
    optimism: Mapping[str, Scalar]
    run: tuple[str, ...]
    rows: tuple[Mapping[str, Scalar], ...]
    share_of_draws_best: float | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"the objective is one of {', '.join(OBJECTIVES)}; got {self.objective!r}")
        if self.node_cap is not None and self.node_cap < 1:
            raise ValueError(f"node_cap must be at least 1; got {self.node_cap}")
        if self.searched < 1:
            raise ValueError(f"searched must be at least 1; got {self.searched}")
        if self.winner not in (None, self.best):
            raise ValueError(f"the winner {self.winner} is not the best policy, {self.best}")
        if not self.run or self.run[0] != self.best.policy:
            raise ValueError(f"run must begin with the best policy, {self.best.policy!r}; got {list(self.run)}")
        if self.share_of_draws_best is not None and not 0 <= self.share_of_draws_best <= 1:
            raise ValueError(f"share_of_draws_best must be from 0 to 1; got {self.share_of_draws_best}")
        if not _VERDICT.fullmatch(self.verdict) or (self.winner is not None) != (_WINS in self.verdict):
            raise ValueError(
                f"the verdict is no sentence that `simlab optimize` writes of {self.winner}; got {self.verdict!r:.200}"
            )
        for row in (self.optimism, *self.rows):
            _check_flat(row)

    def to_json(self) -> Json:
        """The JSON value of the file."""
        values = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        values |= {name: list(getattr(self, name)) for name in ("cost_ids", "run", "rows")}
        return values | {"chosen_on": self.chosen_on.to_json(), "reported_on": self.reported_on.to_json()}


def write_optimum(path: Path, optimum: Optimum) -> None:
    """Write a choice beside and rename it."""
    text = json.dumps(with_digest(optimum.to_json()), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_beside(path, lambda target: target.write(text.encode()))


def read_optimum(path: str | Path) -> Optimum:
    """The choice that `simlab optimize` wrote into a file.

    Raises:
        TraceError: there is no such file, it is something else, newer than this simlab, or damaged.
    """
    fields = read_document(path, KIND)
    try:
        optimum = value_of(
            Optimum,
            fields,
            chosen_on=_prompts(fields.inner("chosen_on")),
            reported_on=_prompts(fields.inner("reported_on")),
            optimism=_flat(fields.inner("optimism")),
            rows=tuple(_flat(row) for row in fields.objects("rows")),
        )
    except ValueError as error:
        raise TraceError(f"{path} is damaged: {str(error).rstrip('.')}; {KIND.again}.") from error
    check_digest(fields)
    return optimum


def _prompts(fields: JsonFields) -> PromptSource:
    listed = fields.inner("names")
    names = frozenset((dataset, name) for dataset in listed.values for name in listed.strings(dataset))
    return value_of(PromptSource, fields, names=names)


def _flat(fields: JsonFields) -> dict[str, Scalar]:
    flat: dict[str, Scalar] = {}
    for key, value in fields.values.items():
        if value is not None and not isinstance(value, str | int | float):
            raise ValueError(f"{fields.where}: {key!r} must be a number, a string or null; got {value!r}")
        flat[key] = value
    return flat


_WINS = " than each of "
_VERDICT = re.compile(r"no winner(?: among .+)?: .+\.|.+ (?:is|are|has|have) .+ than .+\.", re.DOTALL)
"""The sentences of `simlab optimize`: nobody is ahead, others are, or the best is ahead of all."""

ROLES = ("best", "rival", "reference", "bound")
"""What a finalist is: the chosen policy, what comes close, what all are held against, and what no policy reaches."""

_LOW, _HIGH = "_ci_low", "_ci_high"
_ROUNDED = 1 + 1e-9

_TEXTS = ("policy", "policy_id", "role", "cost_id", "measure", "best_on_evaluation")
"""Keys of figures that are no numbers."""


def _check_flat(row: Mapping[str, Scalar]) -> None:
    for key, value in row.items():
        if isinstance(value, str) != (key in _TEXTS) and value is not None:
            kind = "a text" if key in _TEXTS else "a number"
            raise ValueError(f"{key} must be {kind} or null; got {value!r:.60}")
    if row.get("role") not in (None, *ROLES):
        raise ValueError(f"the role of a policy is one of {', '.join(ROLES)}; got {row['role']!r:.60}")
    wrong = [key for key, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    if wrong:
        raise ValueError(f"figures must be finite or null; these are not: {', '.join(wrong)}")
    for key in (key for key in row if key.endswith(_LOW)):
        name = key.removesuffix(_LOW)
        low, figure, high = (row.get(column) for column in (key, name, name + _HIGH))
        numbers = [value for value in (low, figure, high) if isinstance(value, int | float)]
        if len(numbers) == 3 and not numbers[0] <= numbers[1] * _ROUNDED <= numbers[2] * _ROUNDED**2:
            raise ValueError(f"{name} must lie in its interval from {low} to {high}; got {figure}")
