"""The policies that can be replayed, their settings and where they come from."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from simlab.options import option, study
from simlab.policies.parsing.describe import PolicyInfo, SettingInfo, describe_policies
from simlab.untrusted.visible import ShownText

if TYPE_CHECKING:
    import polars as pl

WIDTH = 100
_JOINED = "\N{NO-BREAK SPACE}"

_HOW = """Write `-p NAME` or `-p NAME:key=value,key=value`; a/b/c and a..b make grids.
A policy of your own: `-p path/to/mine.py:MyPolicy`. `simlab policies NAME` has settings and source."""

_PAGE_HEAD = """# Policies

Every policy that `simlab replay`, `simlab confirm` and `simlab export` know by name. This page is made from the code:
`make reference`.

Write `-p NAME` or `-p NAME:key=value,key=value`; `a/b/c` and `a..b` (both ends included) make grids:
`-p ddtree:budget=16/32/64`, `-p chain:length=1..7`. A setting without a default must be given; values are JSON
(`true`, `null`, `0.5`) or plain text.
[Writing a policy](../how_to/write_a_policy.md) says how to add one; [conformance](conformance.md), how to test an
implementation of one in another engine.

*Exactness* says how sure it is that a policy is the published method: *exact (from released code)*, *exact (from
paper)*, or a *reconstruction* where the source leaves something open. In every policy log-probabilities lie on a grid
of 2⁻¹⁶ nat, and paths with equal scores are ordered by their ranks, whatever the original does. Where path
probabilities are summed, those below 2⁻⁴¹ count as 0 ([what follows](../explanation/exactness.md#replay-is-exact)).
"""


@dataclass(frozen=True, repr=False)
class PolicyList(ShownText):
    """Policies and what is known of them.

    Attributes:
        policies: in the order of the table.
        with_details: whether all that their classes say is printed.
    """

    policies: tuple[PolicyInfo, ...]
    with_details: bool = False

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """A row per policy; the settings as they are typed, with their defaults."""
        import polars as pl  # noqa: PLC0415 - the list itself is printed without data frames

        rows = [
            {
                "name": policy.name,
                "summary": policy.summary,
                "settings": list(policy.settings),
                "reads": policy.reads,
                "exactness": policy.exactness,
                "source": policy.source,
            }
            for policy in self.policies
        ]
        return pl.DataFrame(rows)

    def to_json(self) -> list[dict[str, object]]:
        """The value that ``simlab policies --json`` prints."""
        return [policy_json(policy) for policy in self.policies]

    def text(self) -> str:
        """The list as ``simlab policies`` prints it: a line each, or all of those that were named."""
        if self.with_details:
            return "\n\n".join([*(_block(policy) for policy in self.policies), _HOW])
        width = max((len(policy.name) for policy in self.policies), default=0)
        lines = [f"{policy.name:<{width}}  {policy.summary}" for policy in self.policies]
        return "\n".join(
            [
                *(line if len(line) <= WIDTH else f"{line[: WIDTH - 4].rsplit(' ', 1)[0]} ..." for line in lines),
                "",
                _HOW,
            ]
        )

    def markdown(self) -> str:
        """The page of the documentation."""
        return policies_page(self.policies)


@dataclass(frozen=True)
class PoliciesOptions:
    """Which policies are listed."""

    DETAILS: ClassVar = """\
Without NAME a line for each; with one or more, their settings, what they read, and where they come from.

  simlab policies ddtree caddtree
  simlab policies path/to/mine.py:MyPolicy"""

    names: Sequence[str] = option((), "a policy, or path/to/mine.py:MyPolicy", "NAME", repeats=True, positional=True)


@study(PoliciesOptions)
def list_policies(options: PoliciesOptions) -> PolicyList:
    """List policies: what they draft, their settings, and where they come from."""
    return PolicyList(tuple(describe_policies(tuple(options.names))), bool(options.names))


def policy_json(policy: PolicyInfo) -> dict[str, object]:
    """One policy for scripts; a default that JSON cannot say is said in Python's words."""
    return {
        "name": policy.name,
        "summary": policy.summary,
        "details": list(policy.details),
        "settings": [
            {
                "name": setting.name,
                "type": setting.kind,
                "required": setting.required,
                "default": setting.default if _is_plain(setting.default) else repr(setting.default),
            }
            for setting in policy.fields
        ],
        "reads": policy.reads,
        "exactness": policy.exactness,
        "source": policy.source,
        "as_tree": policy.as_tree,
    }


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _block(policy: PolicyInfo) -> str:
    """All of a policy for people, within `WIDTH` columns."""
    prose = [policy.summary, *policy.details]
    lines = [policy.name, *"\n\n".join("\n".join(_wrapped(part, "  ", "  ")) for part in prose).split("\n")]
    # A setting is not broken over two lines.
    settings = ", ".join(setting.replace(" ", _JOINED) for setting in policy.settings)
    facts = {
        "settings": settings or "none",
        "reads": policy.reads,
        "exactness": policy.exactness,
        "source": policy.source,
        "as tree": policy.as_tree,
    }
    facts = {key: value for key, value in facts.items() if value}
    lines += [line for key, value in facts.items() for line in _wrapped(value, f"  {key:<11}", " " * 13)]
    return "\n".join(lines).replace(_JOINED, " ")


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def policies_page(policies: Sequence[PolicyInfo]) -> str:
    """The page docs/reference/policies.md as Markdown."""
    overview = [
        f"| [`{policy.name}`](#{_anchor(policy.name)}) | {_cell(policy.summary)} | {_cell(policy.source)} |"
        for policy in policies
    ]
    head = [_PAGE_HEAD, "| policy | what it drafts | source |\n|---|---|---|\n" + "\n".join(overview) + "\n"]
    return "\n".join([*head, *(_section(policy) for policy in policies)])


def _section(policy: PolicyInfo) -> str:
    prose = "\n\n".join(_filled(part) for part in (policy.summary, *policy.details))
    facts = {"Reads": policy.reads, "Exactness": policy.exactness, "Source": policy.source}
    facts |= {"As a tree": f"`{policy.as_tree}`"} if policy.as_tree else {}
    listed = "\n".join(_filled(f"* *{key}*: {value}", "  ") for key, value in facts.items())
    rows = [f"| `{setting.name}` | {_cell(setting.kind)} | {_default(setting)} |" for setting in policy.fields]
    table = "\n| setting | type | default |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "\nNo settings.\n"
    return f"## {policy.name}\n\n{prose}\n\n{listed}\n{table}"


def _filled(text: str, others: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=others, break_on_hyphens=False, break_long_words=False)


def _default(setting: SettingInfo) -> str:
    return "must be given" if setting.required else f"`{_cell(setting.typed_default)}`"


def _cell(text: str) -> str:
    """Inside a table of Markdown."""
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    """Where the heading of a section is found."""
    return "".join(sign for sign in name.lower() if sign.isalnum() or sign in "-_")
