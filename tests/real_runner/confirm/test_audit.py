"""The audit of texts on tiny models: plain text passes, a flipped token is seen, and so is a wrong end."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
import torch
from depth import examples, some
from tiny_recordings import rendered_prompts

from simlab.arrays import Floats, Ints
from simlab.draft import Prompt
from simlab.real_runner.confirm import audit
from simlab.real_runner.confirm.audit import (
    TextLosses,
    Verdict,
    audit_text,
    least_error,
    measured_bound,
    verdict_of,
)
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose, gap_of, sequence_key

GREEDY = Sampling(0.0, 0, 1.0, 0)
SAMPLED = Sampling(0.9, 0, 1.0, 5)
FILTERED = Sampling(0.9, 20, 0.9, 5)
SAMPLINGS = pytest.mark.parametrize("sampling", some([FILTERED, GREEDY, SAMPLED]))
MAX_NEW_TOKENS = 150
FLIPPED = 11


@pytest.fixture(scope="module", params=some(["llama", "qwen3"]))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.make_target(tmp_path_factory.mktemp("models") / request.param, request.param, seed=1))


@pytest.fixture(scope="module")
def target(place: str) -> Target:
    return load_target(place, torch.float32)


@pytest.fixture(scope="module")
def prompts(target: Target, tmp_path_factory: pytest.TempPathFactory) -> list[Prompt]:
    return rendered_prompts(target, tmp_path_factory.mktemp("prompts"), examples(8, quick=4))


def plain(target: Target, prompt: Prompt, sampling: Sampling) -> Ints:
    """The text of plain decoding."""
    keys = [sequence_key(sampling, prompt)]
    ((text, _),) = generate(target, [prompt.token_ids.tolist()], keys, sampling, MAX_NEW_TOKENS)
    return np.array(text, np.int32)


@torch.inference_mode()
def logits_at(target: Target, prompt: Prompt, text: Ints, place: int) -> Floats:
    """What the target says of one token of a text, from a pass over what is before it."""
    ids = np.concatenate([prompt.token_ids, text[:place]]).astype(np.int64)
    logits: Floats = target.model(torch.from_numpy(ids)[None]).logits[0, -1].float().numpy()
    return logits


def long_one(target: Target, prompts: list[Prompt], sampling: Sampling) -> tuple[Prompt, Ints]:
    """A text that goes on behind the token that a test flips."""
    found = ((prompt, plain(target, prompt, sampling)) for prompt in prompts)
    return next((prompt, text) for prompt, text in found if len(text) > FLIPPED + 5)


def verdict(target: Target, prompt: Prompt, text: Ints, plain_text: Ints, sampling: Sampling, bound: float) -> Verdict:
    audited = audit_text(target, prompt, text, sampling)
    return verdict_of(text, plain_text, audited, bound, target.stop_token_ids, MAX_NEW_TOKENS)


@SAMPLINGS
def test_plain_text_loses_nothing(target: Target, prompts: list[Prompt], sampling: Sampling) -> None:
    """Also past the 128 rows of a pass."""
    texts = [plain(target, prompt, sampling) for prompt in prompts]
    assert max(map(len, texts)) == MAX_NEW_TOKENS or sampling != GREEDY
    for prompt, text in zip(prompts, texts, strict=True):
        audited = audit_text(target, prompt, text, sampling)
        assert audited.losses.tolist() == [0.0] * len(text)
        assert audited.tokens.tolist() == text.tolist()
        assert verdict(target, prompt, text, text, sampling, bound=0.0) == Verdict("exact")


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_flipped_token_loses_the_gap(target: Target, prompts: list[Prompt], sampling: Sampling) -> None:
    prompt, text = long_one(target, prompts, sampling)
    logits = logits_at(target, prompt, text, FLIPPED)
    key, position = sequence_key(sampling, prompt), len(prompt.token_ids) + FLIPPED
    for token in (5, 40, 99):
        flipped = text.copy()
        flipped[FLIPPED] = token
        audited = audit_text(target, prompt, flipped[: FLIPPED + 1], sampling)
        loss = -gap_of(logits, token, sampling, key, position)
        assert loss > 0
        assert audited.losses[:FLIPPED].tolist() == [0.0] * FLIPPED
        assert audited.losses[FLIPPED] == pytest.approx(loss, abs=1e-4)
        assert audited.tokens[FLIPPED] == text[FLIPPED]
        assert choose(raised(logits, token, loss + 1e-3), sampling, key, position) == token
        assert choose(raised(logits, token, loss - 1e-3), sampling, key, position) != token


def raised(logits: Floats, token: int, by: float) -> Floats:
    changed = logits.copy()
    changed[token] += np.float32(by)
    return changed


def test_under_both_filters_the_loss_is_the_least_error(target: Target, prompts: list[Prompt]) -> None:
    prompt, text = long_one(target, prompts, FILTERED)
    logits = logits_at(target, prompt, text, FLIPPED)
    key, position = sequence_key(FILTERED, prompt), len(prompt.token_ids) + FLIPPED
    for token in set(range(tiny_models.VOCAB_SIZE)) - {int(text[FLIPPED])}:
        flipped = text[: FLIPPED + 1].copy()
        flipped[FLIPPED] = token
        loss = float(audit_text(target, prompt, flipped, FILTERED).losses[FLIPPED])
        assert loss == pytest.approx(least_error(logits, token, FILTERED, key, position), abs=1e-4)
        assert choose(raised(logits, token, loss - 1e-3), FILTERED, key, position) != token


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A target whose layers do not blow up the last bits, as those of a trained model do not."""
    made = load_target(str(tiny_models.make_target(tmp_path_factory.mktemp("calm") / "llama", seed=1)), torch.float32)
    for parameter in made.layers.parameters():
        if parameter.dim() > 1:
            parameter.mul_(0.5)
    return made


@SAMPLINGS
def test_bfloat16_is_within_its_bound_and_another_text_is_not(
    calm: Target, prompts: list[Prompt], sampling: Sampling
) -> None:
    half = replace(calm, model=copy.deepcopy(calm.model).bfloat16())
    texts = [plain(half, prompt, sampling) for prompt in prompts]
    bound = max(measured_bound(half, calm, prompt, text) for prompt, text in zip(prompts, texts, strict=True))
    assert 0.05 < bound < 1
    found = [verdict(calm, prompt, text, text, sampling, bound) for prompt, text in zip(prompts, texts, strict=True)]
    total = sum(found, start=Verdict("exact"))
    assert total.kind == "ties"
    assert 0 < total.worst_gap < bound
    other = replace(sampling, seed=6, temperature=0.9)
    for prompt, text in zip(prompts, texts, strict=True):
        assert verdict(calm, prompt, plain(half, prompt, other), text, sampling, bound).kind == "FAILED"


def test_a_fault_just_beyond_the_bound_fails_and_one_just_within_is_a_tie(calm: Target, prompts: list[Prompt]) -> None:
    """Of all single tokens that a runner could have got wrong, the two that lose closest to the measured bound."""
    half = replace(calm, model=copy.deepcopy(calm.model).bfloat16())
    prompt, text = long_one(calm, prompts, GREEDY)
    bound = max(measured_bound(half, calm, one, plain(half, one, GREEDY)) for one in prompts)
    faults = []
    for index in range(len(text) - 1):
        logits = logits_at(calm, prompt, text, index).astype(np.float64)
        tokens = set(range(tiny_models.VOCAB_SIZE)) - {int(text[index]), *calm.stop_token_ids}
        faults += [(float(logits.max() - logits[token]), index, token) for token in tokens]
    # The passes are of other lengths, so the last bits differ.
    within, beyond = (
        max(fault for fault in faults if fault[0] < bound - 1e-4),
        min(fault for fault in faults if fault[0] > bound + 1e-4),
    )
    assert bound - within[0] < 0.05 > beyond[0] - bound
    for (loss, index, token), kind in ((within, "ties"), (beyond, "FAILED")):
        flipped = text[: index + 1].copy()
        flipped[index] = token
        audited = audit_text(calm, prompt, flipped, GREEDY)
        found = verdict_of(flipped, text, audited, bound, calm.stop_token_ids, index + 1)
        assert found.kind == kind
        assert found.worst_gap == pytest.approx(loss, abs=1e-4)


@torch.inference_mode()
def test_the_bound_is_twice_the_largest_error_of_a_gap(place: str, target: Target, prompts: list[Prompt]) -> None:
    half, prompt = load_target(place, torch.bfloat16), prompts[0]
    text = plain(half, prompt, GREEDY)[:30]
    errors = []
    for place_ in range(len(text)):
        reference, found = (logits_at(model, prompt, text, place_).astype(np.float64) for model in (target, half))
        first = int(reference.argmax())
        ids = [*np.argsort(-reference)[:16], text[place_]]
        errors += [abs((found[i] - found[first]) - (reference[i] - reference[first])) for i in ids]
    # The passes are of other lengths, so the last bits differ.
    assert measured_bound(half, target, prompt, text) == pytest.approx(2 * max(errors), rel=0.5)


@torch.inference_mode()
def test_the_bound_is_measured_in_passes_of_all_sizes(
    target: Target, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token as in plain decoding, and trees up to 257 nodes; each state is that of the text alone."""
    prompt, text = max(((one, plain(target, one, GREEDY)) for one in prompts), key=lambda found: len(found[1]))
    whole = target.states(torch.from_numpy(np.concatenate([prompt.token_ids, text]).astype(np.int64))[None])[0]
    sizes, real = [], Target.states

    def watched(self: Target, ids: torch.Tensor, *more: object) -> torch.Tensor:
        sizes.append(ids.shape[1])
        return real(self, ids, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Target, "states", watched)
    found = audit._states_in_pieces(target, prompt, text)
    assert len(found) == len(text) + 1
    assert torch.allclose(found, whole[len(prompt.token_ids) - 1 :], atol=1e-3)
    assert {1, 9, 17, 33, 65, 129, 257} <= set(sizes)


def test_a_text_past_its_stop_token_fails(target: Target, prompts: list[Prompt]) -> None:
    """Every token is the target's own, but one of them ends the text."""
    prompt, text = long_one(target, prompts, GREEDY)
    stops = (*target.stop_token_ids, int(text[FLIPPED]))
    audited = audit_text(target, prompt, text, GREEDY)
    found = verdict_of(text, text, audited, 0.1, stops, MAX_NEW_TOKENS)
    assert str(found) == "FAILED"
    assert "runs past its stop token" in found.fault
    first = int(np.flatnonzero(np.isin(text, stops))[0])
    cut = slice(first + 1)
    assert (
        str(verdict_of(text[cut], text[cut], TextLosses(audited.losses[cut], audited.tokens[cut]), 0.1, stops, 99))
        == "exact"
    )


def test_a_masked_token_loses_what_keeps_it_out(target: Target, prompts: list[Prompt]) -> None:
    """Here one token is allowed, so a raise to its height is what it takes."""
    sampling = replace(FILTERED, top_k=1)
    prompt, text = long_one(target, prompts, sampling)
    logits = logits_at(target, prompt, text, FLIPPED)
    key, position = sequence_key(sampling, prompt), len(prompt.token_ids) + FLIPPED
    for token in (5, 40, 99):
        flipped = text[: FLIPPED + 1].copy()
        flipped[FLIPPED] = token
        assert gap_of(logits, token, sampling, key, position) == -np.inf
        loss = float(audit_text(target, prompt, flipped, sampling).losses[FLIPPED])
        assert choose(raised(logits, token, loss + 1e-3), sampling, key, position) == token
        assert choose(raised(logits, token, loss - 1e-3), sampling, key, position) != token
