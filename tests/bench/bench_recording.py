"""What recording costs beside the arithmetic that it cannot do without.

The floor is one target forward over prompt and text, with its head at the text's positions, and
one drafter forward (context, block, head, log-softmax) for every root. `record_text` does that,
and the selection and ordering of candidates, the trees of 512 nodes, ranks and statistics.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from simlab.draft import Prompt
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.record.texts import forward_text, record_text


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@torch.inference_mode()
def floor(models: Models, tokens: torch.Tensor, prompt_length: int) -> None:
    """The arithmetic alone."""
    config = models.drafter.config
    features, hidden = forward_text(models.target, tokens, config.target_layer_ids)
    models.target.head(hidden[prompt_length - 1 : -1]).float().log_softmax(-1)
    roots = torch.arange(prompt_length, len(tokens) - 1)
    room = torch.empty(64 * config.depth * models.target.vocab_size)
    for _, logits in draft_logits(models.block_drafter, models.target, features, tokens, roots, 64):
        torch.log_softmax(logits, -1, out=room[: logits.numel()].view(logits.shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    arguments = parser.parse_args()
    models = load_models("smollm2-135m", "dflash-smollm2-135m", "float32", "cpu")
    options = RecordOptions("smollm2-135m", "dflash-smollm2-135m", out=None, text_from="-")
    text = models.target.tokenizer.encode("A chain of tokens is drafted, and a tree of them is verified. " * 40)
    prompt, answer = text[:100], text[100 : 100 + arguments.tokens]
    answered = AnsweredTurn(
        Prompt("bench", "bench", 0, 0, np.array(prompt, np.int32)), np.array(answer, np.int32), "length"
    )
    tokens = torch.tensor(prompt + answer)
    ratios = []
    for _ in range(arguments.repeats + 1):
        least = seconds_of(lambda: floor(models, tokens, len(prompt)))
        whole = seconds_of(lambda: record_text(options, models, 0, answered))
        ratios.append(whole / least)
        print(f"floor {least:.2f} s, recording {whole:.2f} s, ratio {whole / least:.2f}")
    counted = ratios[1:]
    print(f"recording / floor: median {statistics.median(counted):.2f}, {min(counted):.2f} to {max(counted):.2f}")
    print(f"{len(counted)} runs, {len(answer)} positions, {torch.get_num_threads()} threads, float32")


if __name__ == "__main__":
    main()
