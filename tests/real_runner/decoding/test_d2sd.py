"""D²SD in the runner: lossless, only what a round asks for is made, and own rows replay; they are those of a record."""

from dataclasses import replace

import pytest
import torch
from systems import DEEPER, MOST, SOMETIMES, extended_models, long_text, redraft_models

from simlab.channels import Branches, BranchRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError, ModelError
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.real_runner.decoding.own_rows import own_sequence
from simlab.real_runner.drafters.dense import TextContext
from simlab.real_runner.networks.redraft import RedraftProducer, RedraftText


def test_a_round_makes_what_it_asks_for() -> None:
    models = redraft_models(1)
    decoded = long_text(models, D2SD(40, branches=2))
    for ran in decoded.rounds:
        seen = ran.channels["d2sd"]
        assert isinstance(seen, Branches)
        assert len(seen.lengths) == 2
        assert seen.ids.shape[1] == 1
    rows = own_sequence(decoded).channels["d2sd"]
    assert isinstance(rows, BranchRows)
    visited = {ran.round.position for ran in decoded.rounds}
    assert [(length >= 0).any() for length in rows.lengths] == [t in visited for t in range(MOST - 1)]


def test_without_a_branch_it_is_the_chain_and_no_second_drafter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the second drafter was run")

    models = redraft_models(1)
    monkeypatch.setattr(RedraftText, "at_root", refuse)
    ours, chain = long_text(models, D2SD(40, branches=0)), long_text(models, Chain())
    assert [ran.round.tree.tokens.tolist() for ran in ours.rounds] == [
        ran.round.tree.tokens.tolist() for ran in chain.rounds
    ]
    with pytest.raises(AssertionError, match="the second drafter was run"):
        long_text(models, D2SD(40, branches=1))


class AllOfThem(D2SD):
    """It does not say which branches it wants."""

    def ask(self, draft: Draft, state: object = None) -> dict[str, tuple[int, ...]]:
        return {}


def test_a_policy_that_does_not_say_is_given_every_branch() -> None:
    models = redraft_models(1, deeper=0)
    decoded = long_text(models, AllOfThem(40, branches=2))
    producer = models.channels["d2sd"]
    assert isinstance(producer, RedraftProducer)
    seen = decoded.rounds[0].channels["d2sd"]
    assert isinstance(seen, Branches)
    assert seen.lengths.tolist() == list(range(producer.base_depth))
    plain = long_text(models, D2SD(40, branches=2))
    assert [ran.round.tree.tokens.tolist() for ran in decoded.rounds] == [
        ran.round.tree.tokens.tolist() for ran in plain.rounds
    ]


# JetSpec's extension in the runner: lossless, run where it is asked for alone, own rows replay, those of a record


def test_a_round_that_asks_for_nothing_runs_nothing_and_projects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the second pass was run")

    models, never = extended_models(1), JetSpecExtended(60, width=2, gap=1e6, length=DEEPER)
    with monkeypatch.context() as patched:
        patched.setattr(RedraftProducer, "redrafts", refuse)
        long_text(models, never)
        with pytest.raises(AssertionError, match="the second pass was run"):
            long_text(models, replace(never, gap=-1.0))
    second, projected, whole = models.channels["extension"].drafter, list[int](), TextContext._append  # type: ignore[union-attr]

    def counted(self: TextContext, features: torch.Tensor) -> None:
        if self._drafter is second:
            projected.append(1)
        whole(self, features)

    monkeypatch.setattr(TextContext, "_append", counted)
    long_text(models, never)
    assert not projected
    decoded = long_text(models, SOMETIMES)
    passes = [ran.channels["extension"] for ran in decoded.rounds]
    assert len(projected) == sum(len(pass_.lengths) for pass_ in passes if isinstance(pass_, Branches))


def test_what_is_not_made_is_refused() -> None:
    models = extended_models()
    with pytest.raises(MissingChannelError, match="makes the one behind the whole chain alone; leave whole=1 out"):
        long_text(models, D2SD(40, branches=1, channel="extension"))
    made = models.channels["extension"]
    assert isinstance(made, RedraftProducer)
    every = replace(models, channels={"extension": replace(made, reach=replace(made.reach, whole=0))})
    with pytest.raises(MissingChannelError, match="with whole 1, and its network makes it with no such setting"):
        long_text(every, SOMETIMES)
    with pytest.raises(ModelError, match="says nothing behind a whole chain of 7; .*block=15"):
        replace(made.reach, depth=7).lengths(7)
    with pytest.raises(ValueError, match="whole=1 is the branch behind the whole chain alone"):
        replace(made.reach, whole=2)
