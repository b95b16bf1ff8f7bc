"""Figures of the field: a mark for every system that has a figure, with the ends of its interval."""

from simlab.analysis.field.figures import gains_figure, speeds_figure


def _row(system: str, size: str, gain: float | None, speeds: tuple[float | None, float | None]) -> dict[str, object]:
    row: dict[str, object] = {"system": system, "size": size, "reconstruction": system == "presto"}
    ends = {"gain_tokens": gain, "predicted_speedup": speeds[0], "measured_speedup": speeds[1], "gpu_like_speedup": 3.0}
    for name, value in ends.items():
        row |= {
            name: value,
            f"{name}_low": None if value is None else value - 0.1,
            f"{name}_high": None if value is None else value + 0.2,
        }
    return row


ROWS = (
    _row("ddtree", "16", None, (1.5, 1.4)),
    _row("presto", "16", 0.05, (1.6, None)),
    _row("ddtree", "64", None, (1.1, 1.2)),
    _row("presto", "64", 0.08, (1.2, 1.3)),
)


def test_gains_have_a_panel_for_each_size() -> None:
    figure = gains_figure(ROWS, ("16", "64"), "ddtree")
    drawn = figure.to_dict()
    marks = drawn["data"]
    assert [list(one["x"]) for one in marks] == [[5.0], [8.0]]
    assert [list(one["y"]) for one in marks] == [["presto*"], ["presto*"]]
    assert list(marks[0]["error_x"]["array"]) == [20.0]
    assert list(marks[0]["error_x"]["arrayminus"]) == [10.0]
    assert list(drawn["layout"]["yaxis"]["categoryarray"]) == ["presto*", "ddtree"]


def test_speeds_leave_out_what_was_not_measured() -> None:
    figure = speeds_figure(ROWS, "16")
    marks = {one["name"]: (list(one["x"]), list(one["y"])) for one in figure.to_dict()["data"]}
    assert marks["predicted"] == ([1.5, 1.6], ["ddtree", "presto*"])
    assert marks["measured"] == ([1.4], ["ddtree"])
    assert marks["GPU-like prices, not measured"][0] == [3.0, 3.0]
