"""``simlab train router`` on tiny models: labels by hand, it learns, goes on, and what it made is recorded."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from commands import refusal_of
from made_up_artefacts import FullArtefacts
from safetensors.torch import load_file
from tiny_recordings import record_given

from simlab.channels import FeatureRows
from simlab.cli.main import main
from simlab.errors import MissingChannelError, PolicyError, PromptError
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.real_runner.networks.router.network import load_router
from simlab.real_runner.record.additions import ChannelOptions, add
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.train.networks.router import RouterRoots, plain_losses, read_roots, router_of
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs, rounds
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

ROUTES = ("ddtree:budget=6", "chain:length=1", "ar")
TYPED = "|".join(ROUTES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, and a recording of ten texts, one of them a single token."""
    folder = tmp_path_factory.mktemp("router")
    record_given(folder, 10, batch_size=4)
    return folder


def arguments(made: Path, out: Path, *more: str) -> list[str]:
    models = ["--trace", str(made / "trace"), "--routes", TYPED, "--target", str(made / "target"), "--out", str(out)]
    plan = ["--steps", "40", "--eval-every", "10", "--sequences", "4", "--roots", "8", "--inner-size", "16"]
    return ["train", "router", *models, *plan, *more]


@pytest.fixture(scope="module")
def trained(made: Path) -> Path:
    """A finished run, not to be changed."""
    out = made / "trained"
    assert main(arguments(made, out)) == 0
    return out


def tokens_at(route: str, recorded: RecordedSequence, root: int) -> int:
    """The first round of a route on what is left of a text."""
    assert recorded.rows is not None
    rows = recorded.rows.part(root, len(recorded.text) - 1, recorded.rows.starts())
    rest = RecordedSequence(0, recorded.prompt, recorded.text[root:], recorded.stop_reason, rows, {})
    if route == "ar":
        return 1
    return 1 + next(rounds(parse_policies([route])[0].policy, rest)).num_accepted


def test_labels_are_rounds_of_the_routes_alone(made: Path, tmp_path: Path) -> None:
    trace, target = open_trace(made / "trace"), load_target(str(made / "target"), torch.float32)
    roots = read_roots([trace, trace], router_of(ROUTES), None, target, tmp_path)
    wanted, texts = [], []
    for sequence in trace.recorded(trace.draft_name()):
        deepest = sequence.rows.counts.shape[1] if sequence.rows is not None else 0
        for root in range(len(sequence.text) - 1 - deepest):
            wanted.append([tokens_at(route, sequence, root) for route in ROUTES])
            texts.append(sequence.index)
    assert roots.tokens.tolist() == wanted * 2
    assert roots.texts.tolist() == [*texts, *(text + len(trace.texts) for text in texts)]
    assert roots.inputs.shape == (2 * len(wanted), tiny_models.HIDDEN_SIZE + 3)
    entropies = {one: rows.entropy for one, rows in trace.token_rows(None)}
    found = roots.entropies[: len(texts)].tolist()
    places = [texts[:index].count(text) for index, text in enumerate(texts)]
    assert found == pytest.approx(
        [float(entropies[text][index]) for text, index in zip(texts, places, strict=True)], abs=1e-3
    )


def test_it_learns_and_says_how_well(trained: Path) -> None:
    found = json.loads((trained / "curve.json").read_text())
    losses = [row["held_out"] for row in found["curve"]]
    assert found["scores"]["network"] == min(losses) < losses[0]
    card = (trained / "README.md").read_text()
    for words in (*ROUTES, "each route's mean", "the entropy alone", "arXiv 2606.07710"):
        assert words in card
    assert load_router(trained).config.routes == ROUTES


def test_going_on_gives_the_same_bytes(made: Path, trained: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert main(arguments(made, again)) == 0
    weights = (again / "model.safetensors").read_bytes()
    assert weights == (trained / "model.safetensors").read_bytes()
    assert "add --resume" in refusal_of(*arguments(made, again))
    (again / "model.safetensors").unlink()
    assert main(arguments(made, again, "--resume")) == 0
    assert (again / "model.safetensors").read_bytes() == weights


def test_what_it_made_is_recorded_and_asked_for(made: Path, trained: Path) -> None:
    trace = add(ChannelOptions(str(made / "trace"), "router", str(trained)))
    check_trace(made / "trace")
    info = trace.manifest.channels["router"]
    assert (info.kind, info.extends) == ("features", None)
    assert info.settings == {"size": 3, "routes": TYPED}
    network, inputs = load_router(trained), load_file(next(trained.glob("inputs-*.safetensors")))["inputs"]
    rows = [
        sequence.channels["router"]
        for sequence in trace.recorded(trace.draft_name(), channels=["router"])
        if len(sequence.text) > 1
    ]
    values = np.concatenate([row.values for row in rows if isinstance(row, FeatureRows)])
    assert values == pytest.approx(network(inputs).numpy(), abs=1e-4)
    with pytest.raises(MissingChannelError, match="its routes are ar, where its network was trained for"):
        check_needs(network_router(("ar",)), trace.holds(trace.draft_name()))
    check_needs(network_router(ROUTES), trace.holds(trace.draft_name()))


def network_router(routes: tuple[str, ...]) -> AnyPolicy:
    return parse_policies([f'router:routes="{"|".join(routes)}",by=network'], FullArtefacts())[0].policy


def test_plain_losses_by_hand() -> None:
    inputs = torch.zeros(4, 5)
    inputs[:, 2] = torch.tensor([0.0, 0.0, 9.0, 9.0])
    learnt = RouterRoots(inputs, torch.tensor([[1.0], [1.0], [3.0], [3.0]]), torch.arange(4))
    constants, entropy = plain_losses(learnt, learnt)
    assert (constants, entropy) == (0.5, 0.0)


def test_texts_are_held_out_whole() -> None:
    roots = RouterRoots(torch.zeros(12, 5), torch.zeros(12, 2), torch.arange(4).repeat_interleave(3))
    learnt, held_out = roots.split(0.3, 1)
    assert len(held_out) == 3
    assert not set(learnt.texts.tolist()) & set(held_out.texts.tolist())
    drawn = learnt.drawn(50, 4, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == set(range(9))
    with pytest.raises(PromptError, match="none learnt from"):
        roots.of(roots.texts == 0).split(0.3, 1)


@pytest.mark.parametrize(
    ("routes", "error", "says"),
    [
        (("chain",), ValueError, "two routes or more"),
        (("chain", "ddtree:budget=2/3"), ValueError, "makes several policies"),
        (("chain", "nothing"), PolicyError, "there is no policy `nothing`"),
        (("chain", "price:rate=3"), PolicyError, "latency profile"),
    ],
)
def test_routes_that_cannot_be(
    made: Path, tmp_path: Path, routes: tuple[str, ...], error: type[Exception], says: str
) -> None:
    if len(routes) > 1:
        with pytest.raises(error, match=says):
            router_of(routes)
    typed = arguments(made, tmp_path / "out")
    typed[typed.index(TYPED)] = "|".join(routes)
    assert says in refusal_of(*typed)


def test_a_route_that_the_recording_does_not_determine(made: Path, tmp_path: Path) -> None:
    typed = arguments(made, tmp_path / "out")
    typed[typed.index(TYPED)] = "chain|eagle3:budget=9"
    assert "reads the channel eagle3" in refusal_of(*typed)
