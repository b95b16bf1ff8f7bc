"""``simlab export --format conformance``: rounds to test another implementation of a policy against."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np

from simlab.channels.needs import channels_made, channels_read
from simlab.errors import UsageError
from simlab.grid import STEPS_PER_NAT
from simlab.policies.conformance import FORMAT, FORMAT_VERSION, conformance_rounds, stages_of
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, prices_for_trace
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import first_prompts
from simlab.testing.random_texts import random_text_for
from simlab.traces.reader import Trace

_SYNTHETIC_KEPT = 12


def conformance_text(
    policy: str,
    trace: Trace,
    costs: Sequence[Path],
    draft_name: str | None,
    limit: int | None,
    rounds: int | None,
    num_synthetic: int,
) -> tuple[str, str]:
    """The file, and a sentence that says what is in it."""
    if len(costs) > 1:
        raise UsageError(f"rounds are exported with one latency profile; got {len(costs)} times --cost")
    draft = trace.draft_name(draft_name)
    wanted = first_prompts(trace, limit)
    one = _policy(policy, prices_for_trace(costs[0] if costs else None, trace, draft, limit), trace, draft)
    lines = [*_recorded_rounds(one, trace, draft, wanted, rounds), *_synthetic_rounds(one, num_synthetic)]
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        for line in (_header(one, trace, draft, len(lines)), *lines)
    )
    return text, f"{len(lines):,} rounds of {one.label}"


def _policy(text: str, prices: Prices, trace: Trace, draft: str) -> NamedPolicy:
    """The one policy that was asked for, if the trace holds what it reads."""
    policies = parse_policies([text], TraceArtefacts(prices, trace, draft))
    if len(policies) != 1:
        raise UsageError(f"`{text}` names {len(policies)} policies; a file holds the rounds of one, so name one")
    check_needs(policies[0].policy, trace.holds(draft))
    return policies[0]


def _header(one: NamedPolicy, trace: Trace, draft: str, num_rounds: int) -> dict[str, object]:
    """What the rounds are of, and how many there are."""
    manifest, needs, channels = trace.manifest, one.policy.needs, channels_made([one.policy])
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
        **({"channel_ids": {name: trace.channel_ids[name] for name in channels}} if channels else {}),
        "simlab_version": metadata.version("simlab"),
        "num_rounds": num_rounds,
    }


def _recorded_rounds(
    one: NamedPolicy, trace: Trace, draft: str, wanted: list[int], most: int | None
) -> Iterator[Mapping[str, object]]:
    """Rounds on the texts of a trace."""
    with progress_bar(None, "export", "sequence", len(wanted)) as bar:
        for recorded in trace.recorded(draft, wanted, channels_read([one.policy])):
            prompt = recorded.prompt
            text = f"{prompt.dataset}/{prompt.prompt_id} turn {prompt.turn} sample {prompt.sample}"
            yield from _rounds(one, recorded, text, most)
            bar.update()


def _synthetic_rounds(one: NamedPolicy, num_texts: int) -> Iterator[Mapping[str, object]]:
    """Rounds on synthetic texts, the same for the same number; see `simlab.testing.random_texts`."""
    generator = np.random.default_rng(0)
    for index in range(num_texts):
        yield from _rounds(one, random_text_for(one.policy, generator, _SYNTHETIC_KEPT), f"made up {index}", None)


def _rounds(
    one: NamedPolicy, recorded: RecordedSequence, text: str, most: int | None
) -> Iterator[Mapping[str, object]]:

    for found in islice(conformance_rounds(one.policy, recorded), most):
        yield {"text": text} | found
