"""``simlab report``: the file, and its verdict."""

from dataclasses import replace
from pathlib import Path

from simlab.studies.report.report import ReportOptions, report

_OUT = Path("report.html")


def run(options: ReportOptions) -> int:
    """Make the report, write it, and print its verdict."""
    out = _OUT if options.out is None else Path(options.out)
    made = report.run(replace(options, out=out))
    print(made.verdict)
    for sentence in made.missing:
        print(sentence)
    print(f"Report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
