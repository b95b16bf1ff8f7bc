"""What each named policy is, for people."""

import dataclasses
import inspect
from dataclasses import dataclass

from simlab.policies import POLICIES


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """One line of the table of policies.

    Attributes:
        name: as it is typed.
        summary: what it drafts, in one sentence.
        settings: each setting as ``name: type`` or ``name: type = default``.
        reads: what it needs of a trace.
        source: where the method comes from.
        exactness: how certain it is that this is the published method.
    """

    name: str
    summary: str
    settings: tuple[str, ...]
    reads: str
    source: str
    exactness: str


def describe_policies() -> list[PolicyInfo]:
    """Every named policy, in the order of `POLICIES`."""
    return [
        PolicyInfo(
            name,
            " ".join((inspect.getdoc(policy) or "").split("\n\n")[0].split()),
            describe_settings(policy),
            reads=getattr(policy, "reads", "see its documentation"),
            source=getattr(policy, "source", "unpublished"),
            exactness=getattr(policy, "exactness", "not stated"),
        )
        for name, policy in POLICIES.items()
    ]


def describe_settings(policy: object) -> tuple[str, ...]:
    """The settings of a policy class, each as ``name: type`` or ``name: type = default``."""
    if not dataclasses.is_dataclass(policy):
        return ()
    return tuple(_describe_field(one) for one in dataclasses.fields(policy) if one.init)


def _describe_field(field: "dataclasses.Field[object]") -> str:
    kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    if field.default is dataclasses.MISSING:
        return f"{field.name}: {kind}"
    return f"{field.name}: {kind} = {field.default!r}"
