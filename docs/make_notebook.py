"""The notebook of the tutorial, executed: `make notebook`. And its page for the site, made from it.

The notebook is the source: edit its cells, then run this. Outputs are kept, but for paths of this machine and for what
goes to standard error.

    python docs/make_notebook.py
"""

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parent
NOTEBOOK = DOCS / "tutorial" / "first_replay.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")
FIGURE = DOCS / "figures" / "first_replay.svg"
PLOTLY = "application/vnd.plotly.v1+json"
SHOWN = "simlab/traces"
"""What stands for the folder of the packaged trace, wherever simlab is installed."""


def executed() -> Any:  # noqa: ANN401 - nbformat carries no types
    """The notebook with fresh outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [cleaned(output) for output in cell.outputs if output.output_type != "stream"]
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def cleaned(output: Any) -> Any:  # noqa: ANN401
    """An output without paths of this machine."""
    folder = str(files("simlab.traces"))
    for kind, value in output.get("data", {}).items():
        if isinstance(value, str):
            output["data"][kind] = value.replace(folder, SHOWN)
    output["metadata"] = {}
    return output


def page_of(notebook: Any) -> str:  # noqa: ANN401
    """The notebook as a page of Markdown: HTML tables as they are, the figure as an image."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python fragment\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if PLOTLY in data:
                parts.append(f"![{cell.metadata.get('caption', 'The figure')}](../figures/{FIGURE.name})")
            elif "text/html" in data:
                parts.append(data["text/html"].strip())
            elif "text/plain" in data:
                parts.append(f"```text\n{data['text/plain']}\n```")
    note = "*This page is a notebook: [first_replay.ipynb](first_replay.ipynb), made by `make notebook`.*"
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def figure_of(notebook: Any) -> Any:  # noqa: ANN401
    """The plotly figure of the notebook, as JSON."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return next(output["data"][PLOTLY] for output in outputs if PLOTLY in output.get("data", {}))


def main() -> None:
    """Execute the notebook, and write it, its page and its figure."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    made = executed()
    NOTEBOOK.write_text(nbformat.writes(made) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(made), encoding="utf-8")
    figure = figure_of(made)
    go.Figure(data=figure["data"], layout=figure["layout"]).write_image(FIGURE, width=760, height=380)


if __name__ == "__main__":
    main()
