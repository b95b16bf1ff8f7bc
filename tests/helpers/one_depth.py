"""Short texts whose drafter looks one token ahead."""

import numpy as np

from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import random_sequence


def of_one_depth(seed: int, number: int) -> list[RecordedSequence]:
    """Made-up texts of one drafter; some have a single token and no round."""
    generator = np.random.default_rng(seed)
    many = (random_sequence(generator, most_kept=6) for _ in range(1000))
    alike = (sequence for sequence in many if sequence.rows is not None and sequence.rows.counts.shape[1] == 3)
    return [next(alike) for _ in range(number)]
