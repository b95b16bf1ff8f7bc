"""``simlab export --format latex`` and ``markdown``: the tables of a result file."""

import argparse

from simlab.analysis.export.tables import export_tables, latex, markdown
from simlab.traces.results.rows import read_results

TABLES = ("latex", "markdown")


def tables_file(options: argparse.Namespace) -> tuple[str, str, list[str]]:
    """The file, a sentence that says what is in it, and what else to know.

    Raises:
        SimlabError: there is no such result file, or it has no rows.
    """
    tables = export_tables(read_results(options.results), options.by)
    text = latex(tables) if options.format == "latex" else markdown(tables)
    many = "" if len(tables) == 1 else "s"
    return text, f"{len(tables)} table{many} of {options.results}", []
