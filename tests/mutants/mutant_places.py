"""What may be mutated: places in the product's modules where another program would be a mistake worth catching."""

import ast
import difflib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

FOLDERS = (
    "simlab",
    "traces",
    "policies",
    "analysis",
    *(f"real_runner/{name}" for name in ("checkpoints", "decoding", "record")),
)
"""Of the real runner what is tested in seconds, and the decoding loop, whose tests of losslessness the mutants test."""

LEFT_OUT = ("simlab/cli", "simlab/testing", "simlab/jit.py", "simlab/__main__.py")
"""Options and printing; what tests policies; the options of compilation, which change times only."""

OPERATORS = (
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "ZeroIterationForLoop",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Invert",
    *(f"ReplaceComparisonOperator_{one}" for one in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceComparisonOperator_{one}" for one in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceComparisonOperator_{one}" for one in ("Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt")),
    *(f"ReplaceBinaryOperator_{one}" for one in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
    *(f"ReplaceBinaryOperator_{one}" for one in ("FloorDiv_Div", "Mod_FloorDiv", "Pow_Mul", "BitOr_BitAnd")),
    *(f"ReplaceBinaryOperator_{one}" for one in ("BitAnd_BitOr", "BitXor_BitOr", "LShift_RShift", "RShift_LShift")),
)
"""cosmic-ray's operators without those that any run would refuse (``+`` for ``<<``) and decorators."""

TEXT_KEYWORDS = ("help", "description", "epilog", "strict")
"""Arguments that are text for people; ``strict`` of `zip`, a guard that differs only after another mistake."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module, as cosmic-ray names it."""

    module: str
    line: int
    operator: str
    occurrence: int

    def apply(self, source: str) -> str:
        """The module's text with the change."""
        changed: str | None = mutate_code(source, plugins.get_operator(self.operator)(), self.occurrence)
        if changed is None:
            raise ValueError(f"{self} is not in this text of {self.module}")
        return changed


def modules(root: Path) -> list[Path]:
    """The modules that are mutated, relative to the repository, sorted."""
    paths = (path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return sorted(path for path in paths if not path.as_posix().startswith(LEFT_OUT))


def _text_nodes(tree: ast.AST) -> Iterator[ast.AST | None]:
    """Parts of a module that people or type checkers read: annotations, messages, decorators, names of a package."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign() | ast.arg():
                yield node.annotation
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.returns
                yield from node.decorator_list
            case ast.ClassDef():
                yield from node.decorator_list
            case ast.Raise() | ast.Assert() | ast.JoinedStr():
                yield node
            case ast.keyword() if node.arg in TEXT_KEYWORDS:
                yield node.value
            case ast.Assign() if any(
                isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
            ):
                yield node
            case ast.If() if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                yield node


def _text_spans(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where those parts begin and end, as (line, column in characters)."""
    lines = source.splitlines()

    def place(line: int, column: int) -> tuple[int, int]:
        return line, len(lines[line - 1].encode()[:column].decode())

    nodes = (node for node in _text_nodes(ast.parse(source)) if isinstance(node, ast.expr | ast.stmt))
    return [
        (place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)) for node in nodes
    ]


def mutants(module: str, source: str) -> dict[tuple[int, int], list[Mutant]]:
    """Every mutant of a module by the place that it changes."""
    spans = _text_spans(source)
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[tuple[int, int], list[Mutant]] = {}
    for name in OPERATORS:
        operator = plugins.get_operator(f"core/{name}")()
        places = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(places):
            if not any(first <= start < last for first, last in spans):
                found.setdefault(start, []).append(Mutant(module, start[0], f"core/{name}", occurrence))
    return found


def _runs(source: str, mutant: Mutant) -> bool:
    """Whether the changed text is a program, and another one."""
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except (SyntaxError, AttributeError):  # cosmic-ray raises the latter of `a.Error` and `*ERRORS` in a tuple
        return False


def sample(root: Path, seed: int) -> Iterator[Mutant]:
    """All places in an order drawn by the seed, and one mutant of each: any first part is a sample of the whole."""
    sources = {path.as_posix(): (root / path).read_text(encoding="utf-8") for path in modules(root)}
    choices = [choice for module, source in sources.items() for _, choice in sorted(mutants(module, source).items())]
    drawn = random.Random(seed)
    drawn.shuffle(choices)
    for choice in choices:
        mutant = drawn.choice(choice)
        if _runs(sources[mutant.module], mutant):
            yield mutant


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, without their indentation: what a list of mutants knows them by."""

    def text(lines: Iterable[str]) -> str:
        return " ".join(line.strip() for line in lines)

    old, new = before.splitlines(), after.splitlines()
    codes = [
        opcode
        for opcode in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if opcode[0] != "equal"
    ]
    return (
        text(line for _, low, high, _, _ in codes for line in old[low:high]),
        text(line for _, _, _, low, high in codes for line in new[low:high]),
    )
