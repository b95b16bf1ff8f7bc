"""What each named policy is, for people: read off its class, whoever wrote it."""

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass

from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.named.tree import Preset, typed_tree
from simlab.policies.parsing.parse import named_class
from simlab.policies.parsing.user_file import load_policy_class, split_user_file
from simlab.policies.routing.routed_policy import PolicyClass
from simlab.policy import Needs

EXAMPLE = 16
"""A setting that must be given, where a policy is shown with its defaults."""


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting of a policy.

    Attributes:
        name: as it is typed.
        kind: its type, in words.
        required: whether it has no default.
        default: None where there is none.
    """

    name: str
    kind: str
    required: bool
    default: object

    def __str__(self) -> str:
        """``name: type`` or ``name: type = default``."""
        return f"{self.name}: {self.kind}" + ("" if self.required else f" = {self.typed_default}")

    @property
    def typed_default(self) -> str:
        """The default as a person types it: JSON, or plain text."""
        if self.default is None or self.default == "" or isinstance(self.default, bool):
            return json.dumps(self.default)
        return str(self.default)


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """One entry of the list of policies.

    Attributes:
        name: as it is typed.
        summary: what it drafts, in one sentence.
        details: the rest that its class says of it, a paragraph each.
        fields: its settings.
        reads: what it needs of a trace, and beside it.
        source: where the method comes from.
        exactness: how certain it is that this is the published method.
        as_tree: the same policy as `tree` composes it, what must be given as `EXAMPLE`; empty: it does not.
    """

    name: str
    summary: str
    details: tuple[str, ...]
    fields: tuple[SettingInfo, ...]
    reads: str
    source: str
    exactness: str
    as_tree: str = ""

    @property
    def settings(self) -> tuple[str, ...]:
        """Each setting as ``name: type`` or ``name: type = default``."""
        return tuple(str(field) for field in self.fields)


def describe_policies(names: Sequence[str] = ()) -> list[PolicyInfo]:
    """The named policies, or classes in files of one's own; without names every policy of the table.

    Args:
        names: of the table, or ``path/to/mine.py:MyPolicy``.
    """
    return [describe(name, _class_of(name)) for name in names or POLICIES]


def describe(name: str, policy: PolicyClass) -> PolicyInfo:
    """What a class says of itself; what it leaves out is said to be left out."""
    summary, *details = _paragraphs(policy) or ["No description."]
    return PolicyInfo(
        name,
        summary,
        tuple(details),
        tuple(_setting(field) for field in _fields(policy)),
        reads=_text_attribute(policy, "reads") or _reads_of_needs(policy),
        source=_text_attribute(policy, "source") or "unpublished",
        exactness=_text_attribute(policy, "exactness") or "not stated",
        as_tree=_as_tree(policy),
    )


def _as_tree(policy: PolicyClass) -> str:
    """The composed tree that a policy is with its defaults; whole numbers that must be given are `EXAMPLE`."""
    if not (isinstance(policy, type) and issubclass(policy, Preset)):
        return ""
    required = {info.name: EXAMPLE for info in map(_setting, _fields(policy)) if info.required and info.kind == "int"}
    try:
        return typed_tree(policy(**required).tree_settings())
    except Exception:  # noqa: BLE001 - anything may go wrong in code of others, and this is a description
        return ""


def _class_of(name: str) -> PolicyClass:
    in_file = split_user_file(name)
    if in_file is not None:
        path, class_name, settings = in_file
        if settings:
            raise PolicyError(f"`{name}` gives settings; write {path}:{class_name} to see which there are")
        return load_policy_class(path, class_name)[0]
    return named_class(name)


def _paragraphs(policy: object) -> list[str]:
    """The paragraphs of a docstring up to the first section such as ``Attributes:``; the first is cut to one sentence.

    The docstring that a dataclass makes up for a class without one is the signature, which is shown anyway.
    """
    text = inspect.cleandoc(getattr(policy, "__doc__", None) or "").replace("``", "`")
    if text.startswith(f"{getattr(policy, '__name__', '')}("):
        return []
    text = re.split(r"^[A-Z]\w+:$", text, maxsplit=1, flags=re.MULTILINE)[0]
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    if not paragraphs:
        return []
    first = re.match(r"(.*?[\w`)]\.)\s+(?=[A-Z`])(.*)", paragraphs[0])
    return paragraphs if first is None else [first[1], first[2], *paragraphs[1:]]


def _text_attribute(policy: object, name: str) -> str:
    value = getattr(policy, name, "")
    return " ".join(value.split()) if isinstance(value, str) else ""


def _fields(policy: object) -> "list[dataclasses.Field[object]]":
    return [field for field in dataclasses.fields(policy) if field.init] if dataclasses.is_dataclass(policy) else []


def _setting(field: "dataclasses.Field[object]") -> SettingInfo:
    kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    kind = kind.replace(" | ", " or ").replace("None", "null")
    if field.default is not dataclasses.MISSING:
        return SettingInfo(field.name, kind, False, field.default)
    if field.default_factory is not dataclasses.MISSING:
        return SettingInfo(field.name, kind, False, field.default_factory())
    return SettingInfo(field.name, kind, True, None)


def _reads_of_needs(policy: PolicyClass) -> str:
    """What a policy of default settings declares that it reads, as far as one can be made."""
    made: dict[type, object] = {int: 1, float: 0.5, str: "", bool: False}
    try:
        hints = typing.get_type_hints(policy)
        required = {info.name: made[hints[info.name]] for info in map(_setting, _fields(policy)) if info.required}
        needs = getattr(policy(**required), "needs", None)
    except Exception:  # noqa: BLE001 - anything may go wrong in code of others, and this is a description
        return "not stated"
    if not isinstance(needs, Needs):
        return "not stated"
    if not needs.draft:
        return "nothing; no drafter is run"
    ranks = "every kept candidate" if needs.top_k is None else f"the first {needs.top_k} candidates at each depth"
    entropies = ["the drafter's entropy at each depth"] * needs.entropies
    return "; ".join(
        [ranks, *entropies, *(f"the channel {channel.name} ({channel.kind})" for channel in needs.channels)]
    )
