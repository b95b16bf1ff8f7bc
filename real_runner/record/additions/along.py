"""Rows along the texts of a trace that the target reads once more, one text after the other or several in a pass."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.drafters.candidate_keys import stream_beside
from simlab.real_runner.record.texts import forward_texts, groups_of
from simlab.real_runner.targets.model import Target
from simlab.recorded import RecordedSequence

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Along(Generic[Made]):
    """What makes rows along texts, its models loaded.

    Attributes:
        target: reads the texts.
        taps: whose states are read, the numbers of its layers.
        of_text: from a text, its tokens int64 ``[P + T]`` with the prompt and the states ``[P + T, taps x H]`` behind
            ``taps`` to its rows.
        threads: in which the rows of texts of one pass are made on a GPU, each with a stream of its own: while one
            waits for its numbers, or packs them, the device works for another. 1 where ``of_text`` runs the target.
    """

    target: Target
    taps: Sequence[int]
    of_text: Callable[[RecordedSequence, Tensor, Tensor], Made]
    threads: int = 2

    def columns(self, texts: Sequence[RecordedSequence], report: Callable[[int], object]) -> list[Made]:
        """The rows of each text; on a CPU one goes through the models after the other.

        Args:
            texts: of any lengths, with the rows that are read beside them.
            report: of each text that is done, how long it is.
        """
        if self.target.device.type != "cpu":
            return self.together(texts, report)
        columns = []
        for text in texts:
            columns.append(self.of_text(text, *_read(self, [text])[0]))
            report(len(text.text))
        return columns

    def together(self, texts: Sequence[RecordedSequence], report: Callable[[int], object]) -> list[Made]:
        """The rows of each text, several of which the target reads in a pass, on any device."""
        columns: dict[int, Made] = {}
        with ThreadPoolExecutor(self.threads) as pool:
            for group in groups_of([len(text.prompt.token_ids) + len(text.text) for text in texts]):
                group_texts = [texts[number] for number in group]
                read = _read(self, group_texts)
                whole = list(zip(group, group_texts, read, strict=True))
                lanes = [whole[lane :: self.threads] for lane in range(self.threads)]
                for made in pool.map(self._lane, range(self.threads), lanes):
                    columns.update(made)
                for text in group_texts:
                    report(len(text.text))
        return [columns[number] for number in range(len(texts))]

    def _lane(
        self, lane: int, texts: Sequence[tuple[int, RecordedSequence, tuple[Tensor, Tensor]]]
    ) -> list[tuple[int, Made]]:
        """The rows of some texts by their numbers, one text after the other, on a stream that waits for the target."""
        device = self.target.device
        if device.type != "cuda":
            return [(number, self.of_text(text, *read)) for number, text, read in texts]
        stream = stream_beside(device, 1 + lane)
        stream.wait_stream(torch.cuda.default_stream(device))
        with torch.cuda.stream(stream):
            return [(number, self.of_text(text, *read)) for number, text, read in texts]


@torch.inference_mode()
def _read(along: Along[Made], texts: Sequence[RecordedSequence]) -> list[tuple[Tensor, Tensor]]:
    """Prompt and text of each, int64 ``[P + T]``, and the states ``[P + T, taps x H]``."""
    ids = [np.concatenate([text.prompt.token_ids, text.text]).astype(np.int64) for text in texts]
    tokens, features, _ = forward_texts(along.target, list(map(torch.from_numpy, ids)), along.taps)
    return list(zip(tokens, features, strict=True))
