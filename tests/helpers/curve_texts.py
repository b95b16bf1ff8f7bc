"""Short made-up texts of one depth, for curves."""

import numpy as np

from simlab.draft import Prompt
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.testing.random_texts import random_sequence


def made_up_texts(seed: int, number: int) -> list[RecordedSequence]:
    """Short texts of one depth, two to a prompt, of two datasets."""
    generator = np.random.default_rng(seed)
    found: list[RecordedSequence] = []
    while len(found) < number:
        sequence = random_sequence(generator, 4)
        if sequence.rows is not None and sequence.rows.counts.shape[1] == 3 and len(sequence.text) > 1:
            index = len(found)
            prompt = Prompt(
                f"p{index // 2}", ("left", "right")[index // 2 % 2], index % 2, 0, sequence.prompt.token_ids
            )
            found.append(RecordedSequence(index, prompt, sequence.text, sequence.stop_reason, sequence.rows))
    return found


def two_at_a_time(texts: list[RecordedSequence]) -> list[RecordedTexts]:
    return [texts_of(texts[at : at + 2]) for at in range(0, len(texts), 2)]
