"""Every policy of the table replays on a fresh installation, and what shows it is small and whole."""

import pytest
from policy_variants import FILLED_IN, VARIANTS
from study_results import refused

from simlab.errors import MissingChannelError
from simlab.policies import POLICIES
from simlab.policies.parsing.describe import describe_policies
from simlab.studies.replay.replay import replay
from simlab.traces.inspect import check_trace
from simlab.traces.reader import EVERY_CHANNEL, SAMPLE, open_trace, packaged_trace

MOST_BYTES = 4_000_000

LEAST = {"whiflash": "entropy=1.0"}
"""Settings without which a policy has no sense here: no router was trained for WhiFlash's own two drafters."""


def typed(name: str) -> str:
    """A policy as a newcomer types it: its name, and what must be given, as its first variant has it."""
    if name in LEAST:
        return f"{name}:{LEAST[name]}"
    (one,) = [each for each in describe_policies() if each.name == name]
    required = [field for field in one.fields if field.required]
    if not required:
        return name
    first = VARIANTS.get(name, ("",))[0]
    filled = [f"{each.name}={FILLED_IN[each.kind]}" for each in required if f"{each.name}=" not in first]
    return f"{name}:{','.join([*filter(None, [first]), *filled])}"


@pytest.mark.parametrize("name", list(POLICIES))
def test_it_gives_a_row_without_a_trace_of_ones_own(name: str) -> None:
    """Of policies of later days too: one that nothing comes with fails here."""
    policy = typed(name)
    try:
        table = replay(policies=[policy], limit=2, progress=False)
    except MissingChannelError as error:
        pytest.fail(
            f"nothing that comes with simlab has what `-p {policy}` reads; add it to the packaged trace "
            f"{EVERY_CHANNEL}, as its README says: {error}"
        )
    rows = table.rows.filter(name=name)
    assert rows.height > 0
    assert rows["committed"].sum() > 0
    assert table.trace.location in map(str, map(packaged_trace, (SAMPLE, EVERY_CHANNEL)))
    assert ("they show that the policy runs" in table.text()) == table.trace.is_illustration


def test_the_trace_is_small_and_whole() -> None:
    folder = packaged_trace(EVERY_CHANNEL)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    check_trace(folder)
    trace = open_trace(EVERY_CHANNEL)
    assert len(trace.sequences()) == 8
    assert {record.prompt.prompt_id for record in trace.sequences()}.isdisjoint(
        record.prompt.prompt_id for record in open_trace(SAMPLE).sequences()
    )


@pytest.mark.parametrize(
    ("policy", "draft"), [("jetspec", "jetspec"), ("self", "self"), ("eagle3", "dflash"), ("d2sd", "dflash")]
)
def test_the_draft_set_is_the_one_that_has_what_is_read(policy: str, draft: str) -> None:
    assert replay(EVERY_CHANNEL, [policy], limit=1, progress=False).draft == draft


def test_what_no_draft_set_has_is_refused_with_a_reason_for_each() -> None:
    said = refused(replay, EVERY_CHANNEL, ["d2sd", "jetspec"])
    assert "no draft set of the packaged trace smollm2-135m-every-channel has all that these policies read" in said


def test_a_trace_that_was_named_is_not_left() -> None:
    assert "jetspec" in refused(replay, SAMPLE, ["jetspec"])
    assert "jetspec" in refused(replay, None, ["jetspec"], draft_set="dflash")
