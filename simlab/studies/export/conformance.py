"""``simlab export --format conformance``: rounds to test another implementation of a policy against."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from simlab.errors import UsageError
from simlab.grid import STEPS_PER_NAT
from simlab.policies.conformance import FORMAT, FORMAT_VERSION, conformance_rounds, stages_of
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.random_texts import random_sequence
from simlab.recorded import RecordedSequence
from simlab.replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.trace import first_prompts
from simlab.traces.reader import Trace, open_trace, packaged_trace

_MADE_UP_KEPT = 12


def conformance_text(options: argparse.Namespace) -> tuple[str, str]:
    """The file, and a sentence that says what is in it.

    Raises:
        SimlabError: the trace or the shelf do not hold what the policy needs, or several were named.
    """
    if len(options.cost or []) > 1:
        raise UsageError(f"rounds are exported at one machine's prices; got {len(options.cost)} times --cost")
    cost = options.cost[0] if options.cost else None
    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = trace.draft_name(options.draft)
    wanted = first_prompts(trace, options.limit)
    one = _policy(options.policy, cost, trace, draft, wanted)
    lines = [*_recorded_rounds(one, trace, draft, wanted, options.rounds), *_made_up_rounds(one, options.made_up or 0)]
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        for line in (_header(one, trace, draft, len(lines)), *lines)
    )
    return text, f"{len(lines):,} rounds of {one.label}"


def _policy(text: str, cost: Path | None, trace: "Trace", draft: str, wanted: list[int]) -> "NamedPolicy":
    """The one policy that was asked for, if the trace holds what it reads.

    Raises:
        SimlabError: it is not one, or the trace or the shelf do not hold what it needs.
    """
    texts = [trace.sequences()[index] for index in wanted]
    longest = max((len(record.prompt.token_ids) + len(record.text) - 2 for record in texts), default=0)
    kept = trace.manifest.draft_sets[draft]
    shelf = TraceArtefacts(prices_of(cost, trace, draft, longest, kept.depth), trace, draft)
    found = parse_policies([text], shelf)
    if len(found) != 1:
        raise UsageError(f"`{text}` names {len(found)} policies; a file holds the rounds of one, so name one")
    check_needs(found[0].policy, kept.exact_budget, kept.min_width)
    return found[0]


def _header(one: "NamedPolicy", trace: "Trace", draft: str, num_rounds: int) -> dict[str, object]:
    """What the rounds are of, and how many there are."""
    manifest, needs = trace.manifest, one.policy.needs
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": one.label,
        "name": one.name,
        "settings": dict(one.settings),
        "policy_id": one.policy_id,
        "artefacts": dict(getattr(one.policy, "artefacts", {})),
        "top_k": needs.top_k if needs.draft else 0,
        "stages": list(stages_of(one.policy)),
        "steps_per_nat": STEPS_PER_NAT,
        "target": manifest.target.name,
        "drafter": manifest.draft_sets[draft].model.name,
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        "simlab_version": metadata.version("simlab"),
        "num_rounds": num_rounds,
    }


def _recorded_rounds(
    one: "NamedPolicy", trace: "Trace", draft: str, wanted: list[int], most: int | None
) -> Iterator[Mapping[str, object]]:
    """Rounds on the texts of a trace."""
    hidden = not sys.stderr.isatty()
    found = trace.recorded(draft, wanted)
    for recorded in tqdm(found, total=len(wanted), desc="export", unit="sequence", delay=2, disable=hidden):
        prompt = recorded.prompt
        text = f"{prompt.dataset}/{prompt.prompt_id} turn {prompt.turn} sample {prompt.sample}"
        yield from _rounds(one, recorded, text, most)


def _made_up_rounds(one: "NamedPolicy", num_texts: int) -> Iterator[Mapping[str, object]]:
    """Rounds on made-up texts, the same for the same number: half of them have few distinct log-probabilities."""
    generator = np.random.default_rng(0)
    for index in range(num_texts):
        yield from _rounds(one, random_sequence(generator, _MADE_UP_KEPT), f"made up {index}", None)


def _rounds(
    one: "NamedPolicy", recorded: "RecordedSequence", text: str, most: int | None
) -> Iterator[Mapping[str, object]]:

    for found in islice(conformance_rounds(one.policy, recorded), most):
        yield {"text": text} | found
