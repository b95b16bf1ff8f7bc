"""``simlab report``: the file, and its verdict."""

from pathlib import Path

from simlab.studies.report.report import ReportOptions, report

_OUT = Path("report.html")


def run(options: ReportOptions) -> int:
    """Make the report, write it, and print its verdict."""
    made = report.run(options)
    out = _OUT if options.out is None else Path(options.out)
    size = made.write(out)
    print(made.verdict)
    for sentence in made.missing:
        print(sentence)
    print(f"Report: {out} ({size / 1e6:.1f} MB)")
    return 0
