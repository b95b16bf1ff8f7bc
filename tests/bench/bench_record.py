"""How many positions a second `simlab record` records, beside the two models' own passes.

The models' own passes are the target's decoding of the same texts in batches, its pass over each text, with its head at
the text's positions, and the drafter's passes over all roots, up to its logits. What recording does beyond these is to
choose and to order candidates, to make statistics, and to write and seal files.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

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

MOST_TIMES = 1.5
"""The aim on a GPU."""

GREEDY = Sampling(0.0, 0, 1.0, 0)
PROMPTS = Path(recording.__file__).parents[2] / "data" / "demo_prompts.jsonl"


def seconds_of(device: str, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if device != "cpu":
        torch.accelerator.synchronize(torch.device(device))
    return time.perf_counter() - start


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


def write_prompts(path: Path, source: Path, number: int) -> None:
    """So many prompts, those of a file again and again."""
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    path.write_text("".join(json.dumps(rows[n % len(rows)] | {"id": str(n)}) + "\n" for n in range(number)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=builtin.NAME)
    parser.add_argument("--draft", default=PACKAGED)
    parser.add_argument("--file", type=Path, default=PROMPTS, help="prompts")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=2, help="the first is not counted where there are more")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    found = list[tuple[float, float, float, int]]()
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder, "prompts.jsonl")
        write_prompts(prompts, asked.file, asked.prompts)
        for repeat in range(asked.repeats):
            options = RecordOptions(
                asked.target,
                asked.draft,
                out=f"{folder}/{repeat}",
                prompts=prompts,
                dtype=asked.dtype,
                device=(asked.device,),
                batch_size=asked.batch_size,
                max_new_tokens=asked.tokens,
            )
            if not repeat:
                loaded = recording.load(options)
                recording.load = lambda options: loaded  # noqa: B023 - what is measured begins with loaded models
            whole = seconds_of(asked.device, lambda: recording.record(options))  # noqa: B023 - run at once
            records = list(open_trace(f"{folder}/{repeat}").records())
            own = seconds_of(asked.device, lambda: decoding(loaded[0], records, asked.batch_size, asked.tokens))  # noqa: B023
            drafted = seconds_of(asked.device, lambda: passes(loaded[0], records))  # noqa: B023
            positions = sum(len(record.text) for record in records)
            found.append((whole, own, drafted, positions))
            print(
                f"{positions} positions, {positions / whole:.0f} a second: {whole:.2f} s; decoding alone {own:.2f} s, "
                f"passes over texts and roots {drafted:.2f} s, recording / both {whole / (own + drafted):.2f}"
            )
    # Each is the least of its own: what else runs on the machine only adds.
    whole, own, drafted, positions = map(min, zip(*(found[1:] or found), strict=True))
    beside = 1e6 * (whole - own - drafted) / positions
    times = whole / (own + drafted)
    print(f"least of each: {positions / whole:.0f} positions a second, {times:.2f} times the own passes")
    print(f"{beside:.0f} ms beside these per 1000 positions; {asked.dtype}, {asked.device}, {asked.batch_size} a batch")
    print(f"within {MOST_TIMES} times the own passes: {'yes' if times <= MOST_TIMES else 'no'}")


if __name__ == "__main__":
    main()
