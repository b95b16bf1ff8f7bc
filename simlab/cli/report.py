"""``simlab report``: the file, and its verdict."""

from dataclasses import replace
from pathlib import Path

from simlab.analysis.table.text import within_width
from simlab.options import check_written
from simlab.studies.report.report import ReportOptions, report

_OUT = Path("report.html")


def run(options: ReportOptions) -> int:
    """Make the report, write it, and print its verdict."""
    out = _OUT if options.out is None else Path(options.out)
    options = replace(options, out=out)
    check_written(options)
    made = report.run(options)
    print(made.verdict)
    for sentence in made.missing:
        print(within_width(sentence))
    print(f"Report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
