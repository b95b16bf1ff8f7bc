"""``simlab train taps`` on tiny models: its loss in plain Python, it learns, resumes to the same bytes, refuses."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import failure_of, refusal_of
from training_runs import content, make_files, scorer_arguments

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.pool import beam_nodes
from simlab.real_runner.networks.taps.scorer import load_scorer
from simlab.real_runner.train.networks.taps import _along


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_files(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run that learns, not to be changed."""
    out = folder / "trained"
    assert main(scorer_arguments(folder, out, "--learning-rate", "0.02", "--patience", "0", steps=60)) == 0
    return out


def curve_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "curve.json").read_text())
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_along_true_paths_is_counted_by_hand(seed: int) -> None:
    """Made-up laws below made-up pools, and texts that leave them at some depth or end."""
    generator = np.random.default_rng(seed)
    depth, width = int(generator.integers(1, 4)), 3
    log_probs = to_grid(np.log(-np.sort(-generator.dirichlet(np.ones(width + 1), (2, depth)))[..., :width]))
    ids = np.stack([[generator.permutation(5)[:width] for _ in range(depth)] for _ in range(2)]).astype(np.int32)
    nodes = beam_nodes(BaseCandidates(ids, log_probs), PoolReach(int(generator.integers(1, 6)), width))
    num_parents = 1 + int((nodes.depths < depth).sum())
    conditional = torch.from_numpy(-generator.random(nodes.tokens.shape) - 0.1)
    rest = torch.from_numpy(-generator.random((2, num_parents)) - 0.1)
    truth = generator.integers(0, 5, (2, depth))
    truth[0, int(generator.integers(0, depth + 1)) :] = -1
    entropies, right, asked, missed, known = _along(nodes, conditional, rest, torch.from_numpy(truth))
    for root in range(2):
        parents, tokens = nodes.parents[root].tolist(), nodes.tokens[root].tolist()
        depths = nodes.depths.tolist()
        reached = [0.0]
        for node, parent in enumerate(parents):
            reached.append(reached[parent] + float(conditional[root, node]))
        at: int | None = 0
        for number, token in enumerate(truth[root].tolist()):
            if token < 0:
                assert not known[root, number:].any()
                assert not asked[root, number:].any()
                break
            assert asked[root, number] == (at is not None)
            own = [node for node, its in enumerate(depths) if its == number + 1]
            below = [node for node in own if parents[node] == at]
            hits = [node for node in below if tokens[node] == token]
            if at is not None:
                said = [float(conditional[root, node]) for node in below]
                expected = float(conditional[root, hits[0]]) if hits else float(rest[root, at])
                assert float(entropies[root, number]) == pytest.approx(-expected)
                assert bool(right[root, number]) == (expected == max([*said, float(rest[root, at])]))
            lost = [-reached[1 + node] if node in hits else -math.log1p(-math.exp(reached[1 + node])) for node in own]
            assert float(missed[root, number]) == pytest.approx(sum(lost))
            at = 1 + hits[0] if hits else None


def test_the_held_out_loss_falls_and_the_scorer_loads(trained: Path, folder: Path) -> None:
    losses = [row["held_out"]["loss"] for row in curve_of(trained)]
    assert min(losses) < 0.9 * losses[0]
    drafter, digest = load_drafter(folder / "drafter", torch.float32), checkpoint_digest(folder / "drafter")
    scorer, reach = load_scorer(trained, drafter, digest)
    assert reach == PoolReach(4, 6)
    assert (scorer.sizes.hidden_size, scorer.sizes.depth) == (32, drafter.config.depth)
    card = (trained / "README.md").read_text()
    assert f"the weights of step {3 * losses.index(min(losses))}" in card
    assert digest in card
    assert "| beam | 4 |" in card
    with pytest.raises(ModelError, match="belongs to the drafter of sha256"):
        load_scorer(trained, drafter, "another")


def test_a_finished_run_is_left_alone_without_resume_and_with_other_pools(trained: Path, folder: Path) -> None:
    before = content(trained)
    typed = scorer_arguments(folder, trained, "--learning-rate", "0.02", "--patience", "0", steps=60)
    assert "add --resume" in refusal_of(*typed)
    assert main([*typed, "--resume"]) == 0
    for change in (("--beam", "5"), ("--extensions", "5"), ("--reach-weight", "1"), ("--weight-decay", "0")):
        assert "other settings" in failure_of(*typed, "--resume", *change)
    assert content(trained) == before


def test_what_a_person_gets_wrong_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    for more, said in (
        (("--reach-weight", "-1"), "reach_weight must be at least 0"),
        (("--held-out", "0"), "held-out share must be between"),
        (("--draft", "./nowhere"), "could not be found"),
    ):
        assert said in failure_of(*scorer_arguments(folder, tmp_path / "run", *more))
