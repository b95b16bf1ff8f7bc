"""What stands beside the settings that ``simlab export`` writes for an engine: whose numbers, and what to know."""

import math
from importlib import metadata

from simlab.analysis.export.engine_settings import ExportedPolicy
from simlab.analysis.export.engine_sources import EngineSource
from simlab.studies.export.batches import ExportedTexts


def about(texts: ExportedTexts) -> dict[str, object]:
    """Where the numbers come from."""
    manifest, trace = texts.trace.manifest, texts.trace
    wanted = set(texts.wanted)
    prompts = [record.prompt for record in trace.sequences() if record.index in wanted]
    return {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[texts.draft],
        "target": short_name(manifest.target.name),
        "drafter": short_name(manifest.draft_sets[texts.draft].model.name),
        "dtype": manifest.dtype,
        "temperature": manifest.sampling.temperature,
        "prompts": len({(prompt.dataset, prompt.prompt_id) for prompt in prompts}),
        "sequences": len(prompts),
        "datasets": sorted({prompt.dataset for prompt in prompts}),
    }


def short_name(name: str) -> str:
    """A model's name without the folders of this machine, since the file may be published."""
    return "/".join(name.split("/")[-2:])


def notes_of(one: ExportedPolicy) -> list[str]:
    """What holds for every engine."""
    where = f"{one.about['prompts']} prompts ({', '.join(map(str, _listed(one.about['datasets'])))})"
    length, interval = one.acceptance.pooled.acceptance_length, one.acceptance.interval
    shown = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    notes = [f"Acceptance length {length:.3f}{shown} of {one.policy.label}, bonus token included, on {where}."]
    if one.choices:
        notes.append(f"The chain of each batch size was chosen on the same {where}, by predicted tokens per second.")
    unclear = [str(choice.prices.batch) for choice in one.choices if choice.length > 0 and 0 in choice.alike]
    if unclear:
        notes.append(
            f"At batch sizes {', '.join(unclear)} these prompts and prices cannot tell the choice from autoregressive "
            "decoding."
        )
    worked_out = [str(choice.prices.batch) for choice in one.choices if choice.prices.what_if]
    if worked_out:
        notes.append(
            f"WHAT IF, hypothetical, not measured: the latencies of batch sizes {', '.join(worked_out)} are those of "
            "one text, in wider passes."
        )
    if one.choices and min(choice.prices.batch for choice in one.choices) > 1:
        notes.append("No latency is known below the smallest batch size here; smaller ones take its choice.")
    return notes


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def stamp(one: ExportedPolicy, source: EngineSource, notes: list[str]) -> dict[str, object]:
    """Whose numbers these are, for a reader of the file."""
    pooled, interval = one.acceptance.pooled, one.acceptance.interval
    return {
        "format": "simlab-export",
        "simlab_version": metadata.version("simlab"),
        "engine": source.stamp(),
        "policy": one.policy.label,
        "policy_id": one.policy.policy_id,
        "artefacts": dict(getattr(one.policy.policy, "artefacts", {})),
        **one.about,
        "rounds": pooled.rounds,
        "committed": pooled.committed,
        "clipped": one.acceptance.clipped,
        "acceptance_length": pooled.acceptance_length,
        "acceptance_length_ci_low": None if math.isnan(interval.low) else interval.low,
        "acceptance_length_ci_high": None if math.isnan(interval.high) else interval.high,
        "acceptance_length_macro": one.acceptance.acceptance_length_macro,
        "batches": [choice.row() for choice in one.choices],
        "notes": notes,
    }
