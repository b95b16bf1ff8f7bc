"""What recording costs beside the arithmetic that it cannot do without.

The floor is one target forward over prompt and text, with its head at the text's positions, and
one drafter forward (context, block, head, log-softmax) for every root. `record_text` does that,
and the selection and ordering of candidates, the trees of 512 nodes, ranks and statistics.
"""

import numpy as np
import torch
from in_turn import asked_for, compared

from simlab.draft import Prompt
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.record.texts import forward_text, record_text

NAMES = ("smollm2-135m", "dflash-smollm2-135m")


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
    asked = asked_for(__doc__, repeats=5, tokens=256)
    models, options = load_models(*NAMES, "float32", "cpu"), RecordOptions(*NAMES, out=None, text_from="-")
    text = models.target.tokenizer.encode("A chain of tokens is drafted, and a tree of them is verified. " * 40)
    prompt, answer = text[:100], text[100 : 100 + asked.tokens]
    turn = Prompt("bench", "bench", 0, 0, np.array(prompt, np.int32))
    answered = AnsweredTurn(turn, np.array(answer, np.int32), "length")
    works = {
        "floor": lambda: floor(models, torch.tensor(prompt + answer), len(prompt)),
        "recording": lambda: record_text(options, models, 0, answered),
    }
    compared(works, asked.repeats)
    print(f"{len(answer)} positions, {torch.get_num_threads()} threads, float32")


if __name__ == "__main__":
    main()
