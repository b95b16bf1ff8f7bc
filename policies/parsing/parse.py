"""Policies as people type them: ``NAME`` or ``NAME:key=value,key=value``, with grids.

A value is JSON, or plain text where JSON does not parse. ``a/b/c`` lists values and ``a..b`` counts
from one whole number to another, both included; several keys with several values make every
combination. ``path/to/mine.py:MyPolicy`` names a class in a file, ``path/to/mine.py:MyPolicy:key=value``
gives it settings. A value in double quotes is taken whole, with any ``,``, ``/`` or ``..`` in it.

A recipe (`Composed`) is made with the artefacts at hand: prices, counts, fitted tables.

In Python a policy may be given as an object too, or as its class, which is then made with its defaults.
"""

import dataclasses
import itertools
import json
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

from simlab.cost import CostTable
from simlab.errors import CostError, PolicyError, did_you_mean, named_or_listed
from simlab.ids import content_id
from simlab.limits import finite_number, is_whole, whole_number
from simlab.policies import POLICIES
from simlab.policies.artefacts import Artefacts, NoArtefacts
from simlab.policies.composition import Composed, Composition, composition_of
from simlab.policies.parsing.objects import (
    PLAIN,
    ClassSource,
    check_is_policy,
    class_source,
    is_policy_class,
    settings_of_object,
    typed_settings,
)
from simlab.policies.parsing.user_file import checked_policy, load_policy_class, split_user_file
from simlab.policies.routing.routed_policy import PolicyClass, RoutedPolicy, RoutedRecipe
from simlab.policies.rules.budgets import SharedRule
from simlab.policy import AnyPolicy, GivenPolicies, GivenPolicy, given_policies
from simlab.untrusted.json_text import parse_json

Setting: TypeAlias = bool | int | float | str | None

MOST_POINTS = 10_000
"""The most policies that one grid may make."""

LABELS = {"ar": "autoregressive"}
"""Names under which a policy stands in tables, where they are not the typed ones."""

_QUOTED_LETTERS = 120
"""So much of what was typed stands in a sentence."""

_QUOTED = r'"(?:[^"\\]|\\.)*"'


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """One point of what was typed.

    Attributes:
        label: what stands in tables, as it was typed for this one point.
        name: the policy's name, or file and class.
        settings: all its settings, defaults included.
        policy: the policy itself; of a recipe the `Composition` that it makes.
        policy_id: the content id of name, settings, the artefacts it uses and the revision of its rule.
    """

    label: str
    name: str
    settings: Mapping[str, Setting]
    policy: AnyPolicy
    policy_id: str


def parse_policies(given: GivenPolicies, artefacts: Artefacts | None = None) -> list[NamedPolicy]:
    """The policies that were asked for, in order; a point asked for twice is there once.

    Args:
        given: each as it is typed, an object, or the class of one.
        artefacts: where recipes find what they were fitted or measured with; None: nothing is at hand.

    Raises:
        PolicyError: an unknown name or setting, a value that does not fit, or something that is no policy.
        SimlabError: an artefact that a recipe asks for is not there.

    >>> [one.label for one in parse_policies(["ar", "ddtree:budget=16/32"])]
    ['autoregressive', 'ddtree:budget=16', 'ddtree:budget=32']
    """
    points: dict[str, NamedPolicy] = {}
    at_hand = NoArtefacts() if artefacts is None else artefacts
    for point in (point for policy in given_policies(given) for point in _given_points(policy, at_hand)):
        points.setdefault(point.policy_id, point)
    ids: dict[str, str] = {}
    for point in points.values():
        if ids.setdefault(point.label, point.policy_id) != point.policy_id:
            raise PolicyError(f"two different policies are called `{point.label}`; give their classes different names")
    return list(points.values())


def label_of(given: GivenPolicy) -> str:
    """What a policy is called in tables: a text as it is, of an object the name of its class and its settings."""
    return given.strip() if isinstance(given, str) else _object(given)[1]


def _given_points(given: GivenPolicy, artefacts: Artefacts) -> Iterator[NamedPolicy]:
    if isinstance(given, str):
        yield from _points(given.strip(), artefacts)
    else:
        source, _, made, typed = _object(given)
        yield _point(source, made, typed, artefacts)


def _object(given: object) -> tuple[ClassSource, str, AnyPolicy, dict[str, str]]:
    """The source of an object, its label, the object itself, and its settings as they are typed."""
    check_is_policy(given)
    kind = cast(type, given) if is_policy_class(given) else type(given)
    source = class_source(kind)
    if is_policy_class(given):
        _check_keys(source, [])
        with _refusing(source.typed):
            given = kind()
    plain, held = settings_of_object(given)
    typed = typed_settings(given, plain, held)
    return dataclasses.replace(source, held=held), _label(source, typed), cast(AnyPolicy, given), typed


def _points(text: str, artefacts: Artefacts) -> Iterator[NamedPolicy]:
    source, settings = _source(text)
    grids = [(key, list(_grid(text, values))) for key, values in _pairs(source, text, settings)]
    _check_keys(source, [key for key, _ in grids])
    if math.prod(len(values) for _, values in grids) > MOST_POINTS:
        raise PolicyError(f"`{_cut(text)}` makes more than {MOST_POINTS:,} policies; ask for fewer values")
    keys, hints = [key for key, _ in grids], _hints(source)
    for values in itertools.product(*(values for _, values in grids)):
        typed = dict(zip(keys, values, strict=True))
        label = _label(source, typed)
        fitting = {key: _fitting(label, key, value, hints[key]) for key, value in typed.items()}
        with _refusing(label):
            if not typed.keys() & {*_CAPS, "cost"}:
                caps = _default_caps(source, artefacts)
                fitting |= caps
                typed |= {name: str(value) for name, value in caps.items()}
            made = cast(AnyPolicy, source.make(**fitting))
        yield _point(source, made, typed, artefacts)


def _source(text: str) -> tuple[ClassSource, str]:
    """The class that a text names, and the text of its settings."""
    in_file = split_user_file(text)
    if in_file is not None:
        path, class_name, settings = in_file
        own, digest = load_policy_class(path, class_name)
        return ClassSource(f"{path}:{class_name}", f"{path.name}:{class_name}", own, {"source": digest}), settings
    name, colon, settings = text.partition(":")
    make = named_class(name)
    if colon and not settings:
        raise PolicyError(f"`{_cut(text)}` ends where settings should follow; write {name}:key=value, or {name} alone")
    return ClassSource(name, name, make, {}), settings


def named_class(name: str) -> PolicyClass:
    """The class of a policy of the table."""
    if name in POLICIES:
        return POLICIES[name]
    first = re.split(r"[ =:]", name)[0]
    if first in POLICIES and first != name:
        raise PolicyError(f"`{name}` is no policy's name; write {first}, or in replays {first}:key=value")
    labelled = {label: typed for typed, label in LABELS.items()}
    meant = f"; did you mean `{labelled[name]}`?" if name in labelled else did_you_mean(name, POLICIES)
    if meant:
        raise PolicyError(f"there is no policy `{name}`{meant} `simlab policies` lists them")
    raise PolicyError(
        f"there is no policy `{name}`; the policies are {', '.join(POLICIES)}, "
        "and path/to/mine.py:MyPolicy for one of your own"
    )


def _pairs(source: ClassSource, text: str, settings: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    pairs = re.findall(rf"(?:{_QUOTED}|[^,])+", settings)
    for pair in pairs:
        key, equals, values = pair.partition("=")
        if not (key and equals and values):
            problem = f"`{_cut(text)}`: settings are key=value, separated by commas; got `{_cut(pair)}`"
            raise PolicyError(f"{problem}{_meant_by(source, pairs, pair)}")
        if key in seen:
            raise PolicyError(f"`{_cut(text)}` sets `{key}` twice; write {key}=a/b for two values")
        seen.add(key)
        yield key, values


def _meant_by(source: ClassSource, pairs: Sequence[str], lone: str) -> str:
    """What was probably meant by a value without a key: another of the key before it, or the first setting's."""
    if "=" in lone:
        return ""
    keyed = [pair for pair in pairs[: pairs.index(lone)] if "=" in pair]
    if keyed:
        lone_ones = itertools.takewhile(lambda pair: "=" not in pair, pairs[pairs.index(lone) :])
        return f"; several values of a setting are {'/'.join([keyed[-1], *lone_ones])}"
    names = [field.name for field in _fields(source)]
    key, colon, value = lone.partition(":")
    if colon and key in names:
        return f"; did you mean `{key}={value}`?"
    return f"; did you mean `{names[0]}={lone}`?" if names and lone not in names else ""


def _grid(text: str, values: str) -> Iterator[str]:
    """The values of one key, each still as text."""
    pieces = re.findall(rf"(?:{_QUOTED}|[^/])+", values)
    if not pieces or len(pieces) != len(re.sub(_QUOTED, "q", values).split("/")):
        raise PolicyError(f"`{_cut(text)}`: a value is missing in `{_cut(values)}`")
    for piece in pieces:
        span = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", piece)
        if span is None:
            yield piece
            continue
        low, high = (_whole(_cut(text), "an end of a range", end) for end in span.groups())
        if not low <= high < low + MOST_POINTS:
            raise PolicyError(f"`{_cut(text)}`: `{piece}` should count upwards, over at most {MOST_POINTS:,} values")
        yield from (str(value) for value in range(low, high + 1))


@contextmanager
def _refusing(label: str) -> Iterator[None]:
    """Turn the refusal of a setting into a sentence about the policy."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise PolicyError(f"`{label}`: {error}") from error


def _point(source: ClassSource, made: AnyPolicy, typed: Mapping[str, str], artefacts: Artefacts) -> NamedPolicy:
    label = _label(source, typed)
    if isinstance(made, Composed):
        with _refusing(label):
            fitted = made.fitted(artefacts)
        names = [field.name for field in _fields(source) if getattr(fitted, field.name) != getattr(made, field.name)]
        label = _label(source, {**typed, **{name: json.dumps(getattr(fitted, name)) for name in names}})
        made = cast(AnyPolicy, fitted)
    settings = {field.name: getattr(made, field.name) for field in _fields(source) if field.name not in source.held}
    for key, value in settings.items():
        if type(value) not in PLAIN:
            raise PolicyError(f"`{label}`: {key} is {value!r}; a setting must be {_one_of(PLAIN)}")
    policy = _policy(label, made, artefacts)
    used = policy if isinstance(policy, RoutedPolicy) else composition_of(policy)
    artefact_ids = {**source.artefact_ids, **source.held} | ({} if used is None else dict(used.artefacts))
    described: dict[str, object] = {"name": source.name, "settings": settings, "artefacts": artefact_ids}
    if isinstance(made, Composed | RoutedRecipe) and made.revision > 1:
        described["revision"] = made.revision
    policy_id = content_id(described)
    return NamedPolicy(LABELS.get(label, label), source.name, settings, policy, policy_id)


_CAPS = ("budget", "tree_budget", "max_budget")
"""Settings that say how many tokens a round drafts at most."""


def _default_caps(source: ClassSource, artefacts: Artefacts) -> dict[str, Setting]:
    """Caps that nobody typed and that the prices at hand do not reach, cut to what they reach."""
    defaults = {field.name: field.default for field in _fields(source) if field.name in _CAPS}
    whole = {name: value for name, value in defaults.items() if type(value) is int}
    return {name: cut for name, value in whole.items() if (cut := artefacts.within_prices(value)) != value}


def _label(source: ClassSource, typed: Mapping[str, str]) -> str:
    settings = ",".join(f"{key}={value}" for key, value in typed.items())
    return f"{source.typed}:{settings}" if typed else source.typed


def _policy(label: str, made: AnyPolicy | RoutedRecipe, artefacts: Artefacts) -> AnyPolicy:
    """The policy that a recipe makes of what is at hand; a class that is none is one itself."""
    if isinstance(made, Composed):
        return _composition(label, made, artefacts)
    return _routed(label, made, artefacts) if isinstance(made, RoutedRecipe) else checked_policy(label, made)


def _routed(label: str, recipe: RoutedRecipe, artefacts: Artefacts) -> RoutedPolicy:
    """A router among what its routes mean, each of which is one policy."""
    routes = list[NamedPolicy]()
    for typed in recipe.typed_routes:
        points = list(_points(typed.strip(), artefacts))
        if len(points) > 1:
            raise PolicyError(f"`{_cut(label)}`: the route `{_cut(typed)}` makes {len(points)} policies; name one")
        routes += points
    route_ids = {f"route {index}": route.policy_id for index, route in enumerate(routes)}
    try:
        return dataclasses.replace(recipe.among([route.policy for route in routes], route_ids, artefacts), label=label)
    except (CostError, PolicyError, ValueError) as error:
        raise PolicyError(f"`{label}`: {error}") from error


def _composition(label: str, recipe: Composed, artefacts: Artefacts) -> Composition:
    """What a recipe makes of what is at hand, under the label that messages name."""
    try:
        made = dataclasses.replace(recipe.compose(artefacts), label=label)
    except (CostError, PolicyError, ValueError, TypeError) as error:
        raise PolicyError(f"`{label}`: {error}") from error
    cost = getattr(made.rule, "cost", None)
    of_each_text = not isinstance(made.rule, SharedRule)
    if of_each_text and isinstance(cost, CostTable) and made.budget > cost.most_drafted:
        raise PolicyError(
            f"`{label}` drafts up to {made.budget:,} tokens, and {cost.label} ends at {cost.most_drafted:,}; "
            f"give it a smaller budget, or {cost.how_to_reach()}"
        )
    return made


def _hints(source: ClassSource) -> dict[str, object]:
    try:
        return typing.get_type_hints(source.make)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise PolicyError(f"the types of the settings of {source.typed} cannot be read: {error}") from error


def _fields(source: ClassSource) -> "list[dataclasses.Field[object]]":
    if not dataclasses.is_dataclass(source.make):
        raise PolicyError(f"{source.typed} must be a dataclass whose fields are its settings")
    return [field for field in dataclasses.fields(source.make) if field.init]


def _check_keys(source: ClassSource, keys: Sequence[str]) -> None:
    fields = _fields(source)
    names = [field.name for field in fields]
    for key in keys:
        if key not in names:
            valid = f"its settings are {', '.join(names)}" if names else "it has none"
            raise PolicyError(f"{source.typed} has no setting `{key}`{named_or_listed(key, names, valid)}")
    for field in fields:
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if not optional and field.name not in keys:
            raise PolicyError(f"{source.typed} needs a {field.name}: write {source.typed}:{field.name}=VALUE")


def _fitting(label: str, key: str, text: str, hint: object) -> Setting:
    """The value that a text stands for, as the type of its field wants it."""
    kinds, label = _kinds(hint), _cut(label)
    if not kinds:
        named = hint.__name__ if isinstance(hint, type) else hint
        raise PolicyError(f"`{label}`: {key} is a {named}, which cannot be typed; a setting must be {_one_of(PLAIN)}")
    if int in kinds and is_whole(text):
        return _whole(label, key, text)
    for value in (_json(text), text):
        for kind in kinds:
            if kind is float and type(value) in (int, float):
                return _finite(label, key, text)
            if type(value) is kind:
                return cast(Setting, value)
    span = re.fullmatch(r"(\d+)[-:](\d+)", text)
    meant = f"; from one to the other is {span[1]}..{span[2]}" if span and int in kinds else ""
    raise PolicyError(f"`{label}`: {key} should be {_one_of(kinds)}; got `{_cut(text)}`{meant}")


def _whole(label: str, key: str, text: str) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise PolicyError(f"`{label}`: {key}: {error}") from error


def _finite(label: str, key: str, text: str) -> float:
    try:
        return finite_number(text)
    except ValueError as error:
        raise PolicyError(f"`{label}`: {key}: {error}") from error


def _cut(text: str) -> str:
    """What was typed, as a sentence can quote it."""
    return text if len(text) <= _QUOTED_LETTERS else f"{text[:_QUOTED_LETTERS]}..."


def _one_of(kinds: Sequence[type]) -> str:
    return " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)


def _kinds(hint: object) -> tuple[type, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(kind for part in typing.get_args(hint) for kind in _kinds(part))
    return (hint,) if isinstance(hint, type) and hint in PLAIN else ()


def _json(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return text
