"""Many prompts: memory that neither text nor prompts make grow."""

import numpy as np
import pytest
import tiny_models
import torch
from watched_operations import Watched

from simlab.draft import Prompt
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.record.texts import record_text


def rows_of_laws(rows: list[int], vocabulary: int) -> Watched:
    """Notes how many rows of a whole vocabulary each tensor had that is made."""

    def seen(_name: str, _given: object, made: list[torch.Tensor]) -> None:
        rows.extend(one.numel() // vocabulary for one in made if one.dim() > 1 and one.shape[-1] == vocabulary)

    return Watched(seen)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    target, drafter = tiny_models.make_pair(tmp_path_factory.mktemp("scale"))
    return load_models(str(target), str(drafter), "float32", "cpu")


OPTIONS = RecordOptions(target="-", draft="-", out="-", prompts="-")


def most_rows(models: Models, length: int) -> int:
    """Laws in the largest tensor of recording one text."""
    generator = np.random.default_rng(length)
    prompt = Prompt("p", "d", 0, 0, generator.integers(5, 100, 8).astype(np.int32))
    answered = AnsweredTurn(prompt, generator.integers(5, 100, length).astype(np.int32), "length")
    rows = list[int]()
    with rows_of_laws(rows, models.target.vocab_size):
        record_text(OPTIONS, models, 0, answered)
    return max(rows)


def test_a_longer_text_has_no_more_laws_at_a_time(models: Models) -> None:
    """A pass over a whole text would make text x depth of them."""
    blocks = 64 * models.drafter.config.depth
    assert [most_rows(models, length) for length in (120, 200, 400)] == [blocks] * 3


def test_decoding_makes_the_laws_of_the_batch_alone(models: Models) -> None:
    """The law after each prompt is made, and none of the places before."""
    prompts = [list(range(5, 5 + length)) for length in (20, 60, 40)]
    rows = list[int]()
    with rows_of_laws(rows, models.target.vocab_size):
        generate(models.target, prompts, [0, 0, 0], OPTIONS.sampling, 4)
    assert max(rows) == len(prompts)
