"""``simlab train taps``: its loss along texts, and with ``--labels law``: labels, loss by hand, refusals."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import failure_of
from training_runs import LAW, scorer_arguments

from simlab.cli.main import main
from simlab.grid import to_grid
from simlab.real_runner.networks.candidates import BaseCandidates
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.pool import BeamNodes, beam_nodes
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.train.networks.taps import _along, drawn_roots, law_loss, read_laws
from simlab.real_runner.train.text import FeatureStore

REACH = PoolReach(5, 6)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run, not to be changed."""
    out = folder / "trained"
    assert main(scorer_arguments(folder, out, *LAW, "--learning-rate", "0.02", "--patience", "0", steps=30)) == 0
    return out


def test_labels_are_what_the_target_says_behind_each_path(folder: Path, trained: Path, tmp_path: Path) -> None:
    """Against the target reading the text and one path, again and again, without a cache or a mask."""
    target, store = load_target(str(folder / "target"), torch.float32), FeatureStore(trained / "features")
    drafter = load_drafter(folder / "drafter", torch.float32)
    labels = read_laws(store, drafter, target, REACH, tmp_path, 2, seed=3)
    texts = [tokens for tokens, _, _ in store.sequences()]
    looked_at = 0
    for text in range(0, len(texts), 3):
        nodes, log_probs = labels.at(np.array([text]), REACH, drafter.config.depth)
        for number, root in enumerate(labels.roots[text].tolist()):
            parents, tokens = nodes.parents[number].tolist(), nodes.tokens[number].tolist()
            paths: list[list[int]] = [[]]
            for parent, token in zip(parents, tokens, strict=True):
                paths.append([*paths[parent], token])
            for node in range(0, len(tokens), 3):
                ids = torch.cat([texts[text][: root + 1], torch.tensor(paths[parents[node]], dtype=torch.int64)])
                with torch.inference_mode():
                    law = target.logits(target.states(ids[None]))[0, -1].log_softmax(-1)
                assert float(log_probs[number, node]) == pytest.approx(float(law[tokens[node]]), abs=1e-4)
                looked_at += 1
    assert looked_at > 30


def test_roots_are_drawn_evenly_and_by_seed_alone(trained: Path) -> None:
    store = FeatureStore(trained / "features")
    for text in store.usable:
        first, last = store.roots_of(text)
        roots = drawn_roots(store, text, 3, 7).tolist()
        assert roots == drawn_roots(store, text, 3, 7).tolist() == sorted(roots)
        assert all(first <= root < last for root in roots)
        assert len(set(roots)) == min(3, last - first)
    assert any(
        drawn_roots(store, text, 3, 7).tolist() != drawn_roots(store, text, 3, 8).tolist() for text in store.usable
    )


def made_up(seed: int) -> tuple[BeamNodes, torch.Tensor, torch.Tensor, np.random.Generator, int]:
    """Pools of two roots, and a scorer's words on them that add up to 1 below each parent."""
    generator = np.random.default_rng(seed)
    depth, width = int(generator.integers(1, 4)), 3
    log_probs = to_grid(np.log(-np.sort(-generator.dirichlet(np.ones(width + 1), (2, depth)))[..., :width]))
    ids = np.stack([[generator.permutation(5)[:width] for _ in range(depth)] for _ in range(2)]).astype(np.int32)
    nodes = beam_nodes(BaseCandidates(ids, log_probs), PoolReach(int(generator.integers(1, 6)), width))
    conditional, rest = outcomes(nodes, generator, depth)
    return nodes, conditional, rest, generator, depth


def outcomes(nodes: BeamNodes, generator: np.random.Generator, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random laws below each parent: log-probabilities of its children, and of the rest."""
    num_parents = 1 + int((nodes.depths < depth).sum())
    conditional, rest = np.zeros(nodes.tokens.shape), np.zeros((2, num_parents))
    for root in range(2):
        for parent in range(num_parents):
            children = np.flatnonzero(nodes.parents[root] == parent)
            law = np.log(generator.dirichlet(np.ones(len(children) + 1)))
            conditional[root, children], rest[root, parent] = law[:-1], law[-1]
    return torch.from_numpy(conditional), torch.from_numpy(rest)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_along_true_paths_is_counted_by_hand(seed: int) -> None:
    """Made-up laws below made-up pools, and texts that leave them at some depth or end."""
    nodes, conditional, rest, generator, depth = made_up(seed)
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


@pytest.mark.parametrize("seed", range(12))
def test_the_loss_is_counted_by_hand(seed: int) -> None:
    nodes, conditional, rest, generator, depth = made_up(seed)
    laws, others = outcomes(nodes, generator, depth)
    divergences, crossed = [], 0.0
    for root in range(2):
        parents = nodes.parents[root].tolist()
        true, said = [0.0], [0.0]
        for node, parent in enumerate(parents):
            true.append(true[parent] + float(laws[root, node]))
            said.append(said[parent] + float(conditional[root, node]))
            reached = math.exp(true[-1])
            crossed -= reached * said[-1] + (1 - reached) * math.log1p(-math.exp(said[-1]))
        for parent in set(parents):
            below = [node for node, its in enumerate(parents) if its == parent]
            pairs = [(float(laws[root, node]), float(conditional[root, node])) for node in below]
            pairs.append((float(others[root, parent]), float(rest[root, parent])))
            divergences.append(sum(math.exp(p) * (p - q) for p, q in pairs))
    expected = sum(divergences) / len(divergences) + 0.5 * crossed / (2 * depth)
    assert float(law_loss(nodes, conditional, rest, laws, 0.5)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_a_scorer_that_says_the_law_diverges_by_nothing(seed: int) -> None:
    nodes, conditional, rest, _, _ = made_up(seed)
    assert float(law_loss(nodes, conditional, rest, conditional, 0.0)) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_a_target_that_is_sure_of_its_text_gives_the_loss_on_the_path(seed: int) -> None:
    """Below true parents; below others a law that puts all on the rest asks for nothing but the rest."""
    nodes, conditional, rest, generator, depth = made_up(seed)
    truth = torch.from_numpy(generator.integers(0, 5, (2, depth)))
    laws = torch.full(nodes.tokens.shape, -200.0, dtype=torch.float64)
    on_path = 0.0
    for root in range(2):
        at: int | None = 0
        for number in range(depth):
            for node in np.flatnonzero((nodes.depths == number + 1) & (nodes.parents[root] == at)):
                if nodes.tokens[root, node] == truth[root, number]:
                    laws[root, node] = 0.0
            hits = np.flatnonzero((laws[root].numpy() == 0.0) & (nodes.depths == number + 1))
            at = 1 + int(hits[0]) if at is not None and len(hits) else None
        true_parents = {0} | {1 + int(node) for node in np.flatnonzero(laws[root].numpy() == 0.0)}
        for parent in set(nodes.parents[root].tolist()) - true_parents:
            on_path -= float(rest[root, parent])
    entropies, _, asked, _, _ = _along(nodes, conditional, rest, truth)
    has_children = [[parent in nodes.parents[root] for parent in range(rest.shape[1])] for root in range(2)]
    # A true node without children in the pool is asked on the path and not by the law.
    barren = 0.0
    for root in range(2):
        for node in np.flatnonzero(laws[root].numpy() == 0.0):
            if nodes.depths[node] < depth and not has_children[root][1 + int(node)]:
                barren -= float(rest[root, 1 + int(node)])
    expected = float((entropies * asked).sum()) - barren + on_path
    count = sum(map(sum, has_children))
    assert float(law_loss(nodes, conditional, rest, laws, 0.0)) * count == pytest.approx(expected, rel=1e-4)


def test_other_labels_and_damaged_files_are_refused(trained: Path, folder: Path, tmp_path: Path) -> None:
    typed = [*LAW, "--learning-rate", "0.02", "--patience", "0"]
    again = scorer_arguments(folder, trained, *typed, "--resume", steps=30)
    assert main(again) == 0
    for change in (("--law-roots", "80"), ("--beam", "5")):
        assert "labels of other texts, roots, pools or models" in failure_of(*again, *change)
    assert "other settings" in failure_of(*scorer_arguments(folder, trained, "--resume", *typed[4:], steps=30))
    assert "less than one root for each of 9 texts" in failure_of(
        *scorer_arguments(folder, tmp_path / "few", "--labels", "law", "--law-roots", "3")
    )
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    (copy / "laws" / "laws-00000.safetensors").write_bytes(b"no")
    assert "delete that file, and resume" in failure_of(*scorer_arguments(folder, copy, *typed, "--resume", steps=30))
