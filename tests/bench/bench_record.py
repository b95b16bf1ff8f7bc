"""How many positions a second `simlab record` records, beside the two models' own passes.

The models' own passes are the target's decoding of the same texts in batches, its pass over each text, with its head at
the text's positions, and the drafter's passes over all roots, up to its logits. What recording does beyond these is to
choose and to order candidates, to make statistics, and to write and seal files.
"""

import json
import tempfile
from itertools import count
from pathlib import Path

import torch
from in_turn import Seconds, Work, asked_for, compared

from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.drafters.ranked import blocks_at_once
from simlab.real_runner.models import Models
from simlab.real_runner.networks.drafter import PACKAGED
from simlab.real_runner.record import record as recording
from simlab.real_runner.record import texts
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.targets import builtin
from simlab.sampling.choice import Sampling
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.reader import open_trace

GREEDY = Sampling(0.0, 0, 1.0, 0)
PROMPTS = Path(recording.__file__).parents[2] / "data" / "demo_prompts.jsonl"


def decoding(models: Models, records: list[SequenceRecord], batch_size: int, most: int) -> None:
    """The texts alone."""
    prompts = [record.prompt.token_ids.tolist() for record in records]
    for first in range(0, len(prompts), batch_size):
        batch = prompts[first : first + batch_size]
        generate(models.target, batch, [0] * len(batch), GREEDY, most, passes=models.texts)


@torch.inference_mode()
def passes(models: Models, records: list[SequenceRecord]) -> None:
    """The target's passes over the texts, as many in one as recording takes, and the drafter's at every root."""
    target, drafter = models.target, models.block_drafter
    config, alone = drafter.config, models.target.device.type == "cpu"
    whole = [torch.tensor([*record.prompt.token_ids.tolist(), *record.text.tolist()]) for record in records]
    lengths = [len(tokens) for tokens in whole]
    for group in [[number] for number in range(len(records))] if alone else texts.groups_of(lengths):
        read = texts.forward_texts(target, [whole[number] for number in group], config.target_layer_ids)
        for number, tokens, features, hidden in zip(group, *read, strict=True):
            start = len(records[number].prompt.token_ids)
            target.logits(hidden[start - 1 : -1])
            roots = torch.arange(start, len(tokens) - 1, device=target.device)
            per_pass = blocks_at_once(config, len(tokens), is_cpu=alone)
            for _ in draft_logits(drafter, target, features, tokens, roots, per_pass):
                pass


def finished(device: str, work: Work) -> Work:
    """A work that ends when the device has done it."""

    def run() -> None:
        work()
        if device != "cpu":
            torch.accelerator.synchronize(torch.device(device))

    return run


def main() -> None:
    asked = asked_for(__doc__, target=builtin.NAME, draft=PACKAGED, file=PROMPTS, prompts=2, tokens=16, batch_size=32,
                      repeats=2, dtype="float32", device="cpu")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), count()
        rows = [json.loads(line) for line in asked.file.read_text().splitlines()]
        lines = [json.dumps(rows[n % len(rows)] | {"id": str(n)}) for n in range(asked.prompts)]
        (folder / "prompts.jsonl").write_text("".join(f"{line}\n" for line in lines))

        def options() -> RecordOptions:
            """How a trace is recorded into a folder of its own."""
            return RecordOptions(
                asked.target,
                asked.draft,
                out=folder / str(next(numbers)),
                prompts=folder / "prompts.jsonl",
                dtype=asked.dtype,
                device=(asked.device,),
                batch_size=asked.batch_size,
                max_new_tokens=asked.tokens,
            )

        loaded = recording.load(options())
        recording.load = lambda options: loaded  # what is measured begins with loaded models
        first = options()
        recording.record(first)
        records = list(open_trace(str(first.out)).records())

        def own_passes() -> None:
            decoding(loaded[0], records, asked.batch_size, asked.tokens)
            passes(loaded[0], records)

        works = {
            "decoding, passes over texts, roots": finished(asked.device, own_passes),
            "recording": finished(asked.device, lambda: recording.record(options())),
        }
        ratios = compared(works, asked.repeats, wanted="at most 1.5 on a GPU")
        seconds = Seconds.of(works["recording"]).wall
    positions = sum(len(record.text) for record in records)
    print(f"{positions} positions, {positions / seconds:.0f} a second in one more run; "
          f"{1e6 * (1 - 1 / ratios['recording'].median) * seconds / positions:.0f} ms beside these per 1000 positions; "
          f"{asked.dtype}, {asked.device}, {asked.batch_size} a batch")  # fmt: skip


if __name__ == "__main__":
    main()
