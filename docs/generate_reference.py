"""The pages of docs/reference that are made from the code: `make reference`. A test holds them equal to the code.

A page is a function that returns its text; PAGES names its file. To add a page: a function, a line in PAGES, and a
line in the `nav` of mkdocs.yml.

    python docs/generate_reference.py [--folder docs/reference]
"""

import argparse
import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

import polars as pl

import simlab
from simlab.channels import POOL, TRANSITIONS
from simlab.cli.main import main
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.format.schema import NUM_TOP, Schema, channel_schema, draft_schema, sequences_schema, tokens_schema
from simlab.traces.results.rounds_file import rounds_schema
from simlab.traces.results.rows import results_schema

REFERENCE = Path(__file__).resolve().parent / "reference"

COLUMNS = 100
"""The width of the help texts, in characters."""

GUIDES = {
    "demo": "../tutorial/index.md",
    "prompts": "../how_to/gpu.md#prompts",
    "record": "../how_to/record.md",
    "replay": "../tutorial/index.md",
    "compare": "../how_to/compare.md",
    "optimize": "../how_to/optimize.md",
    "profile": "../how_to/profile.md",
    "import": "cost_files.md#seconds-that-were-measured-elsewhere",
    "study": "../explanation/index.md",
    "confirm": "../how_to/confirm.md",
    "crosscheck": "../how_to/crosscheck.md",
    "advise": "../how_to/advise.md",
    "report": "../how_to/report.md",
    "train": "../how_to/train.md",
    "policies": "policies.md",
    "export": "../how_to/export.md",
}
"""The page that says more of a command."""

_PLAIN_FIELDS = {
    "target": "name, revision and digest of the target.",
    "drafter": "name, revision and digest of the drafter.",
    "block_size": "positions of the drafter's block, the root's included.",
    "top_k": "see `temperature`.",
    "top_p": "see `temperature`.",
}
"""Fields of a cost file that its class does not describe."""

_SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


# Commands


def commands_page() -> str:
    """The help of every command, as it is printed."""
    head = "What `simlab COMMAND --help-all` prints, for every command. Made from the code by `make reference`."
    return "\n".join(["# Commands\n", textwrap.fill(head, 118) + "\n", *map(_command, command_names())])


def command_names() -> Iterator[tuple[str, ...]]:
    """Every command, and every kind of a command that has kinds, such as ``train dflash``."""
    for name in listed_names(help_text()):
        yield (name,)
        yield from ((name, kind) for kind in listed_names(help_text(name)))


def help_text(*names: str) -> str:
    """What a command prints for ``--help-all``; of the whole command line for ``--help``."""
    return printed(*names, "--help-all" if names else "--help").rstrip()


def printed(*arguments: str) -> str:
    """What the command line prints, at a fixed width and without colour."""
    output, before = io.StringIO(), dict(os.environ)
    os.environ |= {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main(arguments)
    finally:
        os.environ.clear()
        os.environ |= before
    return output.getvalue()


def listed_names(text: str) -> list[str]:
    """The commands that a help text lists below a word in capitals; empty where it lists none."""
    listed = re.search(r"^  [A-Z]+\n((?:    +.*\n?)+)", text, re.MULTILINE)
    return re.findall(r"^    (\S+)", listed[1], re.MULTILINE) if listed else []


def _command(names: tuple[str, ...]) -> str:
    guide = GUIDES.get(names[0], "") if len(names) == 1 else ""
    more = f"See [{_title(guide)}]({guide}).\n\n" if guide else ""
    return f"{'#' * (1 + len(names))} {' '.join(names)}\n\n{more}```text\n{help_text(*names)}\n```\n"


def _title(link: str) -> str:
    """The first heading of the page that a link leads to."""
    page = (REFERENCE / link.partition("#")[0]).read_text(encoding="utf-8")
    return page.partition("\n")[0].removeprefix("# ")


# Python


def python_page() -> str:
    """Every public name of the package, functions first: its signature, and what its docstring says."""
    head = (
        "Every name in `simlab.__all__`, functions first, and what these functions return; made from the code by `make "
        "reference`. Shapes are in brackets; their letters are those of [the "
        "conventions](../development/conventions.md#4-arrays-carry-their-shape-in-writing)."
    )
    values = {name: getattr(simlab, name) for name in simlab.__all__}
    returned = dict.fromkeys(
        kind for value in values.values() for kind in _returned(value) if kind not in values.values()
    )
    values |= {kind.__name__: kind for kind in returned}
    ordered = sorted(values, key=lambda name: (inspect.isclass(values[name]), name))
    sections = [_section(name, values[name]) for name in ordered]
    return "\n".join(["# Python functions\n", textwrap.fill(head, 118, break_long_words=False) + "\n", *sections])


def _returned(value: object) -> list[type]:
    """The class of the package that a function returns, if it is one."""
    if not inspect.isfunction(value):
        return []
    # A name that is imported for type checkers alone is not there at run time.
    with contextlib.suppress(NameError):
        kind = get_type_hints(value).get("return")
        if inspect.isclass(kind) and kind.__module__.startswith("simlab"):
            return [kind]
    return []


def _section(name: str, value: object) -> str:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        said = f"`{value!r}`" if isinstance(value, str | int | float | tuple) else inspect.getdoc(value) or ""
        return f"## {name}\n\n{said}\n"
    node = _source(value)
    prose = _prose(inspect.getdoc(value) or "")
    if hasattr(value, "options"):
        return f"## {name}\n\n```python\n{_study_signature(name, value)}\n```\n\n{prose}\n"
    if isinstance(node, ast.FunctionDef):
        return f"## {name}\n\n```python\n{_signature(node)}\n```\n\n{prose}\n"
    assert isinstance(node, ast.ClassDef)
    assert inspect.isclass(value)
    members = "\n".join(map(_member, _methods(value)))
    listed = f"\n*Methods and properties*\n\n{members}\n" if members else ""
    return f"## {name}\n\n```python\n{_class_header(node)}\n```\n\n{prose}\n{listed}"


def _study_signature(name: str, value: Any) -> str:  # noqa: ANN401 - a study
    """The fields of the options of a study as its arguments, with types and defaults."""
    signature = inspect.signature(value)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        parts += ["*"] if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts else []
        parts.append(_short(str(parameter)))
    listed = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{listed}) -> {_short(inspect.formatannotation(signature.return_annotation))}"


def _short(typed: str) -> str:
    """A type without the modules that its names are in."""
    return re.sub(r"(?:[a-zA-Z_]\w*\.)+(?=[A-Za-z])", "", typed)


def _source(value: type | FunctionType) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _methods(kind: type) -> list[ast.FunctionDef]:
    """The public methods and properties of a class, those of its bases in the package included."""
    methods: dict[str, ast.FunctionDef] = {}
    for base in kind.__mro__:
        node = _source(base) if base.__module__.startswith("simlab") else None
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                methods.setdefault(member.name, member)
    return list(methods.values())


def _class_header(node: ast.ClassDef) -> str:
    """The class with its bases and, of a dataclass, its fields."""
    bases = f"({', '.join(ast.unparse(base) for base in node.bases)})" if node.bases else ""
    fields = [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    return f"class {node.name}{bases}" + "".join(f"\n    {field}" for field in fields)


def _signature(node: ast.FunctionDef) -> str:
    """The arguments as the source writes them, on one line where they fit."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parts = _arguments(node.args)
    line = f"{node.name}({', '.join(parts)}){returns}"
    return (
        line
        if len(line) <= COLUMNS
        else f"{node.name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"
    )


def _arguments(given: ast.arguments) -> list[str]:
    """Each argument with its type and default; the marks between them stand alone."""
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    parts = [_argument(one, default) for one, default in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg:
        parts.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        parts.append("*")
    parts += [
        _argument(kwonlyarg, default) for kwonlyarg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return parts


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    typed = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    return typed if default is None else f"{typed} = {ast.unparse(default)}"


def _member(node: ast.FunctionDef) -> str:
    """A method or property in one line."""
    is_property = any(ast.unparse(one).split(".")[0] in ("property", "cached_property") for one in node.decorator_list)
    arguments = (
        "" if is_property else f"({', '.join(arg.arg for arg in node.args.args if arg.arg not in ('self', 'cls'))})"
    )
    said = (ast.get_docstring(node) or "").split("\n\n")[0]
    return textwrap.fill(f"* `{node.name}{arguments}`: {_plain(said)}", 118, subsequent_indent="  ")


def _prose(docstring: str) -> str:
    """A docstring of the house as Markdown: paragraphs, lists of arguments, examples."""
    shown = []
    for paragraph in re.split(r"\n\s*\n", docstring):
        title, _, rest = paragraph.partition("\n")
        if title.rstrip(":") in _SECTIONS and title.endswith(":"):
            shown += [f"*{title.rstrip(':')}*", _listed(textwrap.dedent(rest))]
        elif ">>>" in paragraph:
            shown += [f"```python\n{paragraph}\n```"]
        else:
            shown += [textwrap.fill(_plain(paragraph), 118)]
    return "\n\n".join(shown)


def _listed(entries: str) -> str:
    joined = re.sub(r"\n\s+", " ", entries)
    lines = [re.sub(r"^(\*?\*?\w+):", r"`\1`:", _plain(line)) for line in joined.split("\n") if line.strip()]
    return "\n".join(textwrap.fill(f"* {line}", 118, subsequent_indent="  ") for line in lines)


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


# Columns and fields


def columns_page() -> str:
    """The columns of every file with their types, and the fields of a cost file."""
    tables = {
        "sequences.parquet": (sequences_schema(), "A row for each text of a [trace](trace_format.md)."),
        "tokens-NNNN.parquet": (tokens_schema(vocab_size=NUM_TOP), "A row for each emitted token of a trace."),
        "draft-NAME-NNNN.parquet": (draft_schema(depth=1), "A row for each root of a trace: the drafter's candidates."),
        "Transitions": (
            channel_schema(TRANSITIONS, width=1),
            "A row for each root, in `channel-NAME-NNNN.parquet`: scores of tokens after single tokens.",
        ),
        "Pools": (
            channel_schema(POOL, width=1),
            "A row for each root, in `channel-NAME-NNNN.parquet`: scored nodes of a tree.",
        ),
        "Result rows": (results_schema(), "A row for each policy and text: `simlab replay --out`, `simlab confirm`."),
        "Rows of rounds": (
            rounds_schema(),
            "A row for each round of each policy, in the order of the result rows: `simlab replay --rounds`.",
        ),
    }
    head = (
        "Names and types at a glance, made from the code by `make reference`. What each column means, its unit and its "
        "invariants: [trace format](trace_format.md), [cost files](cost_files.md). `D` is the depth drafted ahead, `W` "
        f"is {NUM_TOP}, or the size of the vocabulary where that is smaller."
    )
    parts = [f"## {title}\n\n{said}\n\n{_columns(schema)}\n" for title, (schema, said) in tables.items()]
    return "\n".join(["# Columns and fields\n", textwrap.fill(head, 118) + "\n", *parts, _cost_fields()])


def _columns(schema: Schema) -> str:
    rows = [f"| `{name}` | {_type(dtype)} |" for name, dtype in schema.items()]
    return "\n".join(["| column | type |", "|---|---|", *rows])


def _type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Array):
        return f"{_type(_instance(dtype.inner))} [{'W' if dtype.size == NUM_TOP else 'D'}]"
    return f"list of {_type(_instance(dtype.inner))}" if isinstance(dtype, pl.List) else str(dtype).lower()


def _instance(dtype: object) -> pl.DataType:
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made


def _cost_fields() -> str:
    """The fields of a cost file with what the class says of them."""
    docstring = f"{inspect.getdoc(CostFile)}\n"
    listed = re.search(r"Attributes:\n((?:    .*\n)+)", docstring)
    assert listed is not None
    entries = re.sub(r"\n\s+", " ", textwrap.dedent(listed[1])).strip().split("\n")
    said = _PLAIN_FIELDS | {name: _plain(text) for name, text in (entry.split(": ", 1) for entry in entries)}
    hints = get_type_hints(CostFile)
    rows = [
        f"| `{field.name}` | {_hint(hints[field.name])} | {said[field.name]} |"
        for field in dataclasses.fields(CostFile)
    ]
    head = "One JSON object: these fields, `format` and `format_version`. [Cost files](cost_files.md) has their order."
    return "\n".join(["## Cost files\n", head + "\n", "| field | type | meaning |", "|---|---|---|", *rows, ""])


def _hint(hint: object) -> str:
    plain = hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", ()) else str(hint)
    return f"`{re.sub(r'(?:[a-z_]+[.])+', '', plain)}`"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "python.md": python_page,
    "policies.md": lambda: simlab.list_policies().markdown(),
    "columns.md": columns_page,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the pages of docs/reference that come from the code.")
    parser.add_argument("--folder", type=Path, default=REFERENCE, help="where the pages go")
    folder = parser.parse_args().folder
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
        print(folder / name)
