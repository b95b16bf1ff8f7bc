"""Captured work: outputs that keep their places, and what the rehearsal on a CPU refuses as a GPU would."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from captured_rehearsals import CannotBeCapturedError, WatchedGraphs
from torch import Tensor

from simlab.real_runner.execution.captured_work import CapturedGraphs
from simlab.real_runner.execution.fixed_drafter import run

CPU = torch.device("cpu")
Work = Callable[..., tuple[Tensor, ...]]


def test_what_is_made_lies_in_the_same_memory_each_time() -> None:
    graphs = CapturedGraphs(CPU)

    def doubled(x: Tensor) -> tuple[Tensor]:
        return (2 * x,)

    (first,) = graphs.call("double", doubled, torch.tensor([1.0, 2.0]))
    assert first.tolist() == [2, 4]
    (second,) = graphs.call("double", doubled, torch.tensor([3.0, 5.0]))
    assert second.tolist() == first.tolist() == [6, 10]
    assert second.data_ptr() == first.data_ptr()
    (other,) = graphs.call("double", doubled, torch.tensor([1.0]))
    (another,) = graphs.call("again", doubled, torch.tensor([4.0, 5.0]))
    assert (other.tolist(), another.tolist(), first.tolist()) == ([2], [8, 10], [6, 10])
    graphs.forget()
    (anew,) = graphs.call("double", doubled, torch.tensor([7.0, 5.0]))
    assert (anew.tolist(), first.tolist()) == ([14, 10], [6, 10])


def test_without_captures_work_is_run_as_it_comes() -> None:
    (found,) = run(None, "key", lambda x: (x + 1,), torch.tensor([1.0]))
    (again,) = run(None, "key", lambda x: (x + 2,), torch.tensor([1.0]))
    assert (found.tolist(), again.tolist()) == ([2], [3])


HELD, ELSEWHERE = torch.arange(4.0), [torch.zeros(4) for _ in range(4)]
CANNOT: dict[str, tuple[Work, str]] = {
    "a number for the host": (lambda x: (x * int(x.sum()),), "waits for the device"),
    "a choice by a mask": (lambda x: (x[x > 1],), "by a mask"),
    "places of a mask": (lambda x: (x.new_zeros(4).index_add(0, torch.nonzero(x > 1)[:, 0], x[2:]),), "nonzero"),
    "a number of the host": (lambda x: (x + torch.tensor([1.0, 2.0, 3.0, 4.0]),), "waits for the device"),
    "an array of the host": (lambda x: (x + torch.from_numpy(np.arange(4.0)),), "takes memory from the host"),
    "memory elsewhere each time": (lambda x: (x + ELSEWHERE.pop(),), "at other places"),
    "numbers that work makes": (lambda x: (x + HELD.clone(),), ""),
}


@pytest.mark.parametrize("what", CANNOT)
def test_a_rehearsal_refuses_what_cannot_be_captured(what: str) -> None:
    """What work makes by itself may lie anywhere."""
    work, said = CANNOT[what]
    graphs = WatchedGraphs(CPU)

    def twice() -> None:
        for _ in range(3):
            graphs.call("work", work, torch.arange(4.0))

    if not said:
        twice()
        assert graphs.num_repeated == 2
        return
    with pytest.raises(CannotBeCapturedError, match=said):
        twice()
