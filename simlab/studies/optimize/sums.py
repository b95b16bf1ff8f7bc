"""A search in parts: each machine sums up some of the prompts, and whoever has all sums chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import polars as pl

from simlab.analysis.optimize.candidate_sums import CandidateSums
from simlab.arrays import Doubles
from simlab.errors import UsageError
from simlab.studies.optimize.inputs import PromptSet, SearchInputs
from simlab.studies.optimize.space import SearchPoint, SearchSpace
from simlab.traces.format.json_fields import first_difference
from simlab.traces.results.parts import NotedPart, check_whole
from simlab.traces.results.sums import SUMS, SumRows, read_sums, sums_schema
from simlab.workers.parts import Part

_KEYS = ("dataset", "prompt_id", "cost_id", "policy", "policy_id")


def check_one_step(space: SearchSpace, halving: bool | None, option: str) -> None:
    """Refuse a search of several steps, each of which goes on from the sums on all prompts of the one before.

    Args:
        space: what is searched.
        halving: whether worse policies are to be dropped on the way; None: as many as there are, they are not.
        option: which does not go with it.
    """
    if space.ranged:
        entry = space.entries[space.ranged[0]].text
        raise UsageError(
            f"`{entry}` is searched trial after trial, each on all prompts, so it takes no {option}; list values: "
            "0.0/0.5/1.0"
        )
    if halving:
        raise UsageError(f"--halving drops policies by their sums on all prompts, so it takes no {option}")


def searched_part(part: Part, inputs: SearchInputs) -> NotedPart:
    """What the file of a part says of the search that it is a part of."""
    return NotedPart(part, _search(inputs))


def sum_rows(side: PromptSet, points: Sequence[SearchPoint], sums: CandidateSums) -> SumRows:
    """The sums of policies on some prompts, as a table: prompt after prompt, machine after machine.

    Args:
        side: whose prices they are at.
        points: the policies.
        sums: theirs, ``[M, P, prompts]``.
    """
    keys = _keys(side, points, [side.prompts.index(one) for one in sums.prompts])
    shape = sums.rounds.shape
    by_prompt: dict[str, Doubles] = {
        "committed": np.broadcast_to(sums.committed, shape),
        "rounds": sums.rounds,
        "drafted": sums.drafted,
        "seconds": sums.seconds,
        "plain_seconds": np.broadcast_to(sums.plain_seconds[:, None], shape),
    }
    columns = [pl.Series(name, np.moveaxis(values, 2, 0).ravel()) for name, values in by_prompt.items()]
    schema = sums_schema()
    rows = keys.hstack(columns).with_columns(pl.lit(side.name).alias("side"), pl.col(SUMS).fill_nan(None))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


@dataclass(frozen=True, slots=True)
class KnownSums:
    """The sums of a search that its parts have worked out.

    Attributes:
        path: of the file.
        rows: of both sides.
    """

    path: Path
    rows: SumRows

    def on(self, side: PromptSet, points: Sequence[SearchPoint]) -> CandidateSums:
        """The sums of these policies on all prompts of a side."""
        wanted = _keys(side, points, range(len(side.prompts)))
        known = self.rows.filter(side=side.name).with_columns(known=pl.lit(value=True))
        found = wanted.join(known, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")
        lacking = found.filter(pl.col("known").is_null())
        if found.height != wanted.height or not lacking.is_empty():
            dataset, prompt, cost_id, policy, _ = (lacking if lacking.height else found).select(_KEYS).row(0)
            raise UsageError(
                f"{self.path} has not one sum of {policy} with the latency profile {cost_id} on {dataset}/{prompt}; "
                "type the same -p, --cost and --node-cap as for its parts"
            )
        shape = (len(side.prompts), len(side.prices), len(points))
        table = found.select(pl.col(SUMS).cast(pl.Float64).fill_null(float("nan")))
        committed, rounds, drafted, seconds, plain = (
            np.ascontiguousarray(np.moveaxis(table[name].to_numpy().reshape(shape), 0, 2)) for name in SUMS
        )
        return CandidateSums(side.prompts, committed[0, 0], rounds, drafted, seconds, plain[:, 0])


def known_sums(path: Path, inputs: SearchInputs) -> KnownSums:
    """The sums of all parts of this very search."""
    rows, noted, of = read_sums(path)
    check_whole(path, noted)
    differing = first_difference(dict(sorted(of.items(), reverse=True)), _search(inputs))
    if differing is not None:
        raise UsageError(f"{path} is of another search: it differs in {differing}; give it what its parts were given")
    return KnownSums(path, rows)


def _search(inputs: SearchInputs) -> Mapping[str, object]:
    """What all parts of a search agree in, besides their policies."""
    of: dict[str, object] = {"simlab_version": metadata.version("simlab")}
    for side in (inputs.dev, inputs.evaluation):
        of |= {
            f"{side.name}_text_id": side.trace.text_id,
            f"{side.name}_draft_id": side.trace.draft_ids[side.draft],
            f"{side.name}_channel_ids": dict(side.trace.manifest.held().channel_ids),
            f"{side.name}_prompts": len(side.prompts),
        }
    return of


def _keys(side: PromptSet, points: Sequence[SearchPoint], places: Sequence[int]) -> pl.DataFrame:
    """Prompt, prices and policy of each sum, prompt after prompt, machine after machine."""
    schema = sums_schema()
    prompts = pl.DataFrame(
        [side.prompts[place] for place in places], {one: schema[one] for one in _KEYS[:2]}, orient="row"
    )
    policies = pl.DataFrame(
        [
            (prices.cost_id, one.typed, one.policies[machine].policy_id)
            for machine, prices in enumerate(side.prices)
            for one in points
        ],
        {one: schema[one] for one in _KEYS[2:]},
        orient="row",
    )
    return prompts.join(policies, how="cross", maintain_order="left_right")
