"""A confirmation from trace to summary: predicted, measured, audited, judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.command_confirm_rows import differences_of, judged_by_policy, measured_rows
from simlab.command_cost import Prices
from simlab.command_line import needing_models
from simlab.command_replay_rows import Asked, largest_budget
from simlab.command_replay_run import Manner, first_prompts, replay_prices, replay_trace
from simlab.command_replay_text import heading
from simlab.command_shelf import in_sample_note
from simlab.errors import CostError, TraceError

if TYPE_CHECKING:
    from simlab.analysis.confirm_table import ConfirmedPolicy, Contest
    from simlab.policies.spec import NamedPolicy
    from simlab.real_runner.confirm_options import ConfirmOptions
    from simlab.real_runner.confirm_setup import ConfirmSetup
    from simlab.traces.reader import Trace
    from simlab.traces.results import Results

RESULTS, SUMMARY = "results.parquet", "confirm.json"
"""The files beside the log."""

_SMALLER = "give --dtype bfloat16, or policies of smaller budgets"
_NO_PRICES = (
    "Nothing is predicted: simlab ships no prices for just these models, this machine and these settings; measure them "
    "with `simlab profile`, and give the file with --cost."
)


@dataclass(frozen=True, slots=True, eq=False)
class Confirmation:
    """What came out.

    Attributes:
        heading: what was replayed and run, in lines.
        policies: a row each.
        won: None where no policy can have won.
        differences: from the trace, as flat values; None where the two are not held against each other.
        in_sample: labels of policies whose tables or counts are of the very texts of the trace.
    """

    text_id: str
    draft_ids: dict[str, str]
    prices: Prices
    heading: str
    policies: "tuple[ConfirmedPolicy, ...]"
    won: "Contest | None"
    differences: tuple[dict[str, object], ...] | None
    in_sample: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether a text is not the target's, or rounds do not equal their replay."""
        from simlab.analysis.confirm_table import FAILED

        judged = [one.judged for one in self.policies if one.judged is not None]
        return any(one.lossless == FAILED or not one.counts_equal_replay for one in judged)

    @property
    def verdict(self) -> str:
        """What came out, a sentence a line."""
        from simlab.analysis.confirm_text import verdict_text

        return verdict_text(self.policies, self.won)

    def text(self) -> str:
        """All of it, for people."""
        from simlab.analysis.confirm_text import confirm_notes, confirm_table, differences_text, stage_table

        parts = [self.verdict, self.heading, confirm_table(self.policies), stage_table(self.policies)]
        parts += [] if self.differences is None else [differences_text(self.differences)]
        parts.append(confirm_notes(self.policies, self.prices.why_none))
        return "\n\n".join([*parts, *filter(None, [in_sample_note(self.in_sample)])])

    def value(self) -> dict[str, object]:
        """All of it, for scripts."""
        rows = [one.row() for one in self.policies]
        return {
            "text_id": self.text_id,
            "draft_ids": self.draft_ids,
            "cost": self.prices.cost_id,
            "verdict": self.verdict,
            "rows": [row | {"in_sample": row["policy"] in self.in_sample} for row in rows],
            "differences": list(self.differences or ()),
        }


def confirm(
    options: "ConfirmOptions",
    trace: "Trace",
    policies: "Sequence[NamedPolicy]",
    cost: Path | None = None,
    in_sample: tuple[str, ...] = (),
) -> Confirmation:
    """Replay policies on a trace, run them on its prompts, and hold the two against each other.

    Progress goes to stderr; nothing is printed. The log, the result rows of both kinds and the summary
    are in ``options.out`` when this returns.

    Args:
        options: which models to run, and how.
        trace: whose prompts are run.
        policies: plain decoding among them; see `simlab.command_replay.with_references`.
        cost: the prices of the prediction; None: those that come with simlab, if they are of just this.
        in_sample: labels to be marked; see `simlab.command_shelf`.

    Raises:
        SimlabError: models, trace, policies, prices and log do not fit each other; nothing was run.
    """
    from simlab.analysis.confirm_table import confirmed_policies, contest
    from simlab.traces.results import joined_results, results_frame

    with needing_models("confirm"):
        from simlab.real_runner.confirm import finished, measure
        from simlab.real_runner.confirm_audit import audit, verdicts
        from simlab.real_runner.confirm_log import ConfirmLog, check_out
        from simlab.real_runner.confirm_setup import check_trace, load_setup
        from simlab.real_runner.models import within_memory

    check_out(options.out, options.resume)
    check_trace(trace, policies)
    wanted = set(first_prompts(trace, options.limit))
    records = [record for record in trace.sequences() if record.index in wanted]
    if not any(len(record.text) > 1 for record in records):
        raise TraceError(f"{trace.place} holds no text of more than one token, so there is nothing to confirm")
    with within_memory(_SMALLER):
        setup = load_setup(options, trace, policies, records)
        prices = prices_for(cost, setup)
        asked = Asked(prices, tuple(policies))
        predicted = replay_trace(trace, setup.draft, [asked], options.limit, Manner(best_budgets=False))
        log = ConfirmLog(options.out, setup.key(), options.resume)
        measure(setup, log)
        audit(setup, log)
    sequences = finished(log)
    results = joined_results([predicted, results_frame(measured_rows(setup, sequences))])
    judged = judged_by_policy(setup, sequences, verdicts(setup, log))
    found = confirmed_policies(results, judged)
    done = Confirmation(
        text_id=trace.text_id,
        draft_ids={setup.draft: trace.draft_ids[setup.draft]},
        prices=prices,
        heading=f"{heading(trace, setup.draft, predicted, prices)}\n{_run_line(setup)}",
        policies=tuple(found),
        won=contest(found, results),
        differences=tuple(differences_of(setup, sequences)) if setup.is_reference else None,
        in_sample=in_sample,
    )
    _write(options.out, results, done)
    return done


def prices_for(path: Path | None, setup: "ConfirmSetup") -> Prices:
    """The prices of a file that was measured with just what is run, or shipped ones of that kind.

    Raises:
        CostError: the file that was asked for was measured with anything else, or does not reach far enough.
    """
    from simlab.traces.cost_file import packaged_cost_files, read_cost_file

    asked = (setup.trace, setup.draft, setup.policies, setup.options.limit)
    if path is not None:
        found = setup.price_difference(read_cost_file(path))
        if found is not None:
            raise CostError(
                f"{path} was measured with {found}; a prediction that is to be confirmed needs prices of just what is "
                "run: measure them with `simlab profile --out FILE`, or leave --cost out"
            )
        return replay_prices(path, *asked)
    fitting = [one for one in packaged_cost_files() if setup.price_difference(read_cost_file(one)) is None]
    if not fitting:
        return Prices(None, "none", _NO_PRICES)
    try:
        prices = replay_prices(fitting[0], *asked)
    except CostError as error:
        return Prices(None, "none", f"Nothing is predicted: {error}")
    most = largest_budget(setup.policies, setup.draft_set.depth)
    if prices.cost is not None and most > prices.cost.most_drafted:
        return Prices(None, "none", _too_small(most, prices.cost.most_drafted))
    return prices


def _too_small(most: int, priced: int) -> str:
    return (
        f"Nothing is predicted: a policy may draft {most:,} tokens, and the shipped prices reach {priced:,}; measure "
        "more with `simlab profile --node-counts ...`, and give the file with --cost."
    )


def _run_line(setup: "ConfirmSetup") -> str:
    """What was run, in the form of the heading."""
    options, key = setup.options, setup.key()
    line = f"{options.dtype} on {key['--device']}, threads {key['threads']}, repeats {options.repeats}"
    if options.dtype != setup.manifest.dtype:
        line += f"; the trace is {setup.manifest.dtype}, from which a {options.dtype} text may part"
    return f"{'run'.ljust(8)} {line}"


def _write(out: Path, rows: "Results", done: Confirmation) -> None:
    import json

    from simlab.traces.files import write_beside
    from simlab.traces.results import write_results

    write_results(out / RESULTS, rows)
    text = json.dumps(done.value(), indent=1, allow_nan=False) + "\n"
    write_beside(out / SUMMARY, lambda file: file.write(text.encode()))
