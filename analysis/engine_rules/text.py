"""Tables of engine rules as a person reads them."""

from collections.abc import Mapping, Sequence

from simlab.analysis.table.text import aligned, number, within_width

Row = Mapping[str, object]

SCHEDULE_NOTES = (
    "behind: the share of a schedule's speed that is missing; below 0 it is faster. [95 %] over prompts, paired.\n"
    "hindsight knows what the target accepts and takes the best number of each round by itself; no rule of chains can\n"
    "know it. stale=N: the number of tokens is made from confidences N drafts old. joint-throughput drafts trees."
)
CALIBRATION_NOTES = (
    "At drafts of counted texts whose earlier tokens the target accepts: the share that it accepts, what is believed\n"
    "in the mean, and the difference. labels: drafts among them that the rule verified itself; it hears of no other.\n"
    "all labels: the same estimator, told of every draft as the trace knows them, in a replay of its own."
)


def schedules_text(rows: Sequence[Row], batch: int) -> str:
    """A line for each schedule at one batch size."""
    table = [["schedule", "acceptance", "drafted", "tokens/s", "behind hindsight", "behind joint-throughput"]]
    table += [["", "length", "/round", "", "%, [95 %]", "%, [95 %]"]]
    table += [
        [
            str(row["schedule"]),
            number(_number(row["acceptance_length"]), 2),
            number(_number(row["drafted_per_round"]), 2),
            number(_number(row["tokens_per_s"]), 2),
            _interval(row, "behind_hindsight"),
            _interval(row, "behind_joint_throughput"),
        ]
        for row in rows
        if row["batch"] == batch
    ]
    return aligned(table, [True, False, False, False, False, False])


def calibration_text(rows: Sequence[Row], batch: int) -> str:
    """A line for each estimator and position at one batch size."""
    table = [
        ["estimator", "position", "drafts", "accepted", "believed", "bias, points", "labels", "accepted", "believed"]
    ]
    table += [["", "", "", "%", "%", "[95 %]", "", "%", "%"]]
    table += [
        [
            str(row["estimator"]),
            str(row["position"]),
            f"{row['drafts']:,}",
            _percent(row["accepted"]),
            _percent(row["believed"]),
            _interval(row, "bias"),
            f"{row['labels']:,}",
            _percent(row["labels_accepted"]),
            _percent(row["labels_believed"]),
        ]
        for row in rows
        if row["batch"] == batch
    ]
    return aligned(table, [True, *[False] * 8])


def heading(batch: int, prices: str) -> str:
    """Above the tables of a batch size."""
    return within_width(f"{batch} at a time: {prices}")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _percent(value: object) -> str:
    return number(100 * _number(value), 1)


def _interval(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{_percent(row[name])} [{_percent(low)}, {_percent(high)}]"
