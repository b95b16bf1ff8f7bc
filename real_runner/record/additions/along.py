"""Rows along the texts of a trace that the target reads once more, one text after the other or several in a pass."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.drafters.places import stream_beside
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

    def columns(self, texts: Sequence[RecordedSequence], told: Callable[[int], object]) -> list[Made]:
        """The rows of each text; on a CPU one goes through the models after the other.

        Args:
            texts: of any lengths, with the rows that are read beside them.
            told: of each text that is done, how long it is.
        """
        if self.target.device.type != "cpu":
            return self.together(texts, told)
        found = []
        for text in texts:
            found.append(self.of_text(text, *_read(self, [text])[0]))
            told(len(text.text))
        return found

    def together(self, texts: Sequence[RecordedSequence], told: Callable[[int], object]) -> list[Made]:
        """The rows of each text, several of which the target reads in a pass, on any device."""
        found: dict[int, Made] = {}
        with ThreadPoolExecutor(self.threads) as pool:
            for group in groups_of([len(one.prompt.token_ids) + len(one.text) for one in texts]):
                some = [texts[number] for number in group]
                read = _read(self, some)
                whole = list(zip(group, some, read, strict=True))
                lanes = [whole[lane :: self.threads] for lane in range(self.threads)]
                for made in pool.map(self._lane, range(self.threads), lanes):
                    found.update(made)
                for text in some:
                    told(len(text.text))
        return [found[number] for number in range(len(texts))]

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
    ids = [np.concatenate([one.prompt.token_ids, one.text]).astype(np.int64) for one in texts]
    tokens, features, _ = forward_texts(along.target, list(map(torch.from_numpy, ids)), along.taps)
    return list(zip(tokens, features, strict=True))
