"""JetSpec's extension in the runner: lossless, run where it is asked for alone, own rows replay, those of a record."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from systems import CLOSE, DEEPER, SOMETIMES, extended_models, long_text, recorded_of

from simlab.arrays import Ints
from simlab.channels import Branches
from simlab.errors import MissingChannelError, ModelError
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.drafters.text_context import TextContext
from simlab.real_runner.heads import redraft_producer as producer_module
from simlab.real_runner.heads.redrafts import redrafts


def test_a_round_that_asks_for_nothing_runs_nothing_and_projects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the second pass was run")

    models, never = extended_models(1), JetSpecExtended(60, width=2, gap=1e6, length=DEEPER)
    with monkeypatch.context() as patched:
        patched.setattr(producer_module, "redrafts", refuse)
        long_text(models, never)
        with pytest.raises(AssertionError, match="the second pass was run"):
            long_text(models, replace(never, gap=-1.0))
    second, projected, whole = models.channels["extension"].drafter, list[int](), TextContext.context  # type: ignore[union-attr]

    def counted(self: TextContext) -> object:
        if self._drafter is second:
            projected.append(1)
        return whole(self)

    monkeypatch.setattr(TextContext, "context", counted)
    long_text(models, never)
    assert not projected
    decoded = long_text(models, SOMETIMES)
    passes = [ran.channels["extension"] for ran in decoded.rounds]
    assert len(projected) == sum(len(one.lengths) for one in passes if isinstance(one, Branches))


def test_a_chain_that_is_one_token_off_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    models, whole = extended_models(2), cast(Callable[..., object], redrafts)

    def shifted(*given: object) -> object:
        chains: Ints = given[5]  # type: ignore[assignment]
        return whole(*given[:5], np.roll(chains, 1, axis=1), *given[6:])

    policy = replace(SOMETIMES, gap=-1.0)
    monkeypatch.setattr(producer_module, "redrafts", shifted)
    decoded = long_text(models, policy)
    monkeypatch.undo()
    assert compare_with_record(policy, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


def test_what_is_not_made_is_refused() -> None:
    models = extended_models()
    with pytest.raises(MissingChannelError, match="makes the one behind the whole chain alone; leave whole=1 out"):
        long_text(models, D2SD(40, branches=1, channel="extension"))
    made = models.channels["extension"]
    assert isinstance(made, producer_module.RedraftProducer)
    every = replace(models, channels={"extension": replace(made, reach=replace(made.reach, whole=0))})
    with pytest.raises(MissingChannelError, match="with whole 1, and its network makes it with no such setting"):
        long_text(every, SOMETIMES)
    with pytest.raises(ModelError, match="says nothing behind a whole chain of 7; .*block=15"):
        replace(made.reach, depth=7).lengths(7)
    with pytest.raises(ValueError, match="whole=1 is the branch behind the whole chain alone"):
        replace(made.reach, whole=2)
