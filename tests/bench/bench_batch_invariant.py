"""What passes of one fixed shape cost, and what they bring: texts that are plain decoding's, token for token.

Every policy decodes each prompt without and with them, in turn in one process. The rows are those of the largest
budget that runs, so plain decoding pays for it too.
"""

import argparse
import statistics
from dataclasses import dataclass, field, replace

import torch

from simlab.draft import Prompt
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.real_runner.attention.batch_invariant import rows_for
from simlab.real_runner.checkpoints.files import PACKAGED
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.timer import clock_of
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.targets import builtin
from simlab.sampling.choice import Sampling
from simlab.traces.reader import open_trace, packaged_trace

GREEDY = Sampling(0.0, 0, 1.0, 0)


@dataclass(slots=True)
class Seen:
    """Of one policy in one mode: texts, ms of each round, tokens and seconds of each prompt."""

    texts: list[list[int]] = field(default_factory=list)
    round_ms: list[float] = field(default_factory=list)
    verify_ms: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-p", "--policy", action="append", default=[])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    labels = arguments.policy or ["chain", "ddtree:budget=8/16"]
    policies = parse_policies(["ar", *labels])
    models = load_models(builtin.NAME, PACKAGED, arguments.dtype, arguments.device)
    rows = rows_for([one.policy for one in policies], models.drafter.config.depth)
    modes = {"as they come": models, f"{rows} rows": replace(models, fixed_rows=rows)}
    seen = {(mode, one.label): Seen() for mode in modes for one in policies}
    prompts = [one.prompt for one in open_trace(packaged_trace()).sequences()][: arguments.prompts]
    for number, prompt in enumerate([prompts[0], *prompts]):
        for one in policies:
            for mode, chosen in modes.items():
                _decode(chosen, one, prompt, arguments, seen[mode, one.label] if number else Seen())
    for mode in modes:
        plain = seen[mode, policies[0].label]
        print(f"{mode}:")
        for one in policies:
            own, free = seen[mode, one.label], seen["as they come", one.label]
            num_same = sum(text == other for text, other in zip(own.texts, plain.texts, strict=True))
            slower = statistics.median(a / b for a, b in zip(free.tokens_per_s, own.tokens_per_s, strict=True))
            print(
                f"  {one.label:18} same text {num_same} of {len(prompts)}, {statistics.median(own.round_ms):6.1f} ms a "
                f"round (target {statistics.median(own.verify_ms):.1f}), {own.num_tokens / own.seconds:5.1f} tokens/s "
                f"({own.num_tokens / own.seconds / (plain.num_tokens / plain.seconds):.2f} x plain), {slower:.2f} x "
                "the time without"
            )
    threads = torch.get_num_threads()
    print(f"{len(prompts)} prompts of {arguments.tokens} tokens, {arguments.dtype}, {threads} threads; medians")


def _decode(models: Models, one: NamedPolicy, prompt: Prompt, arguments: argparse.Namespace, seen: Seen) -> None:
    clock = clock_of(torch.device(arguments.device))
    found = decode(models, one.policy, prompt, GREEDY, arguments.tokens, clock)
    seen.texts.append(found.text.tolist())
    seen.round_ms += [1e3 * ran.seconds.total_s for ran in found.rounds]
    seen.verify_ms += [1e3 * ran.seconds.verify_s for ran in found.rounds]
    seen.tokens_per_s.append((len(found.text) - 1) / found.seconds.total_s)
    seen.num_tokens += len(found.text) - 1
    seen.seconds += found.seconds.total_s


if __name__ == "__main__":
    main()
