"""Numbers in settings that no policy can bear are refused in one sentence, whichever the setting."""

from contextlib import suppress

import pytest

from simlab.errors import PolicyError, SimlabError
from simlab.policies import POLICIES
from simlab.policies.parsing.describe import describe
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.parsing.search_space import parse_entry

REQUIRED = {"int": "8", "float": "0.5", "str": "ar"}
SETTINGS = [
    (name, one.name, kind)
    for name, policy in POLICIES.items()
    for one in describe(name, policy).fields
    for kind in ("int", "float")
    if one.kind.split()[0] == kind
]


def typed(name: str, key: str, value: str) -> str:
    """A policy with one setting of a person's, and what it needs besides."""
    needed = {one.name: REQUIRED[one.kind] for one in describe(name, POLICIES[name]).fields if one.required}
    return f"{name}:{','.join(f'{at}={given}' for at, given in (needed | {key: value}).items())}"


def test_settings_are_found() -> None:
    assert len([one for one in SETTINGS if one[2] == "int"]) > 30
    assert len([one for one in SETTINGS if one[2] == "float"]) > 10


@pytest.mark.parametrize(("name", "key", "kind"), SETTINGS, ids=lambda one: one)
def test_what_no_policy_can_bear_is_refused(name: str, key: str, kind: str) -> None:
    whole = [str(2**31), str(-(2**31)), str(2**63), "9" * 400, "9" * 5000, "1_000", "٣", "３", "+5", "012"]
    real = ["1e999", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, "1_0.5", "٣.5"]
    for value in whole if kind == "int" else real:
        with pytest.raises(PolicyError) as refused:
            parse_policies([typed(name, key, value)])
        said = str(refused.value)
        assert key in said
        assert len(said) < 400
        assert "\n" not in said


@pytest.mark.parametrize(("name", "key", "kind"), [one for one in SETTINGS if one[2] == "int"], ids=lambda one: one)
def test_large_settings_are_refused_in_a_sentence_or_will_do(name: str, key: str, kind: str) -> None:
    for value in ("0", "-1", "65534", "65535", "1000000000", str(2**31 - 1)):
        said = ""
        with suppress(SimlabError):
            parse_policies([typed(name, key, value)])
            said = "made"
        assert not (said and key == "budget") or 0 < int(value) <= 65_534


@pytest.mark.parametrize("end", ["٣", "３", "9" * 400, "9" * 5000, "-" + "9" * 5000])
def test_ends_of_ranges_are_numbers(end: str) -> None:
    for text in (f"ddtree:budget=1..{end}", f"ddtree:budget={end}..7"):
        with pytest.raises(PolicyError, match="expected a whole number|should count upwards") as refused:
            parse_policies([text])
        assert len(str(refused.value)) < 400


def test_a_range_of_a_billion_is_refused() -> None:
    with pytest.raises(PolicyError, match="over at most 10,000 values"):
        parse_policies(["ddtree:budget=1..1000000000"])
    with pytest.raises(PolicyError, match="between finite numbers"):
        parse_entry(f"survival:threshold=0.1~{'9' * 400}")
    assert parse_entry("survival:threshold=٠~٣").ranges == ()
