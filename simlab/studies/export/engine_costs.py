"""``simlab export --format sglang-sps``, ``vllm-curves`` and ``sglang-sts``: what engines' schedulers read."""

import json
from collections.abc import Sequence
from pathlib import Path

from simlab.analysis.export.engine_costs import BatchCosts, sampled_steps, step_curves
from simlab.analysis.export.temperatures import FEWEST, chain_positions, temperature_of
from simlab.errors import CostError, TraceError, UsageError
from simlab.studies.export.batches import ExportedTexts
from simlab.studies.inputs.prices import cost_table_of
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.artefacts.cost import CostFile, read_cost_file
from simlab.traces.artefacts.engine_files import curves_text, sampled_text
from simlab.traces.artefacts.engine_tables import SGLANG, VLLM_CURVES

COST_TABLES = (SGLANG, VLLM_CURVES)
TEMPERATURES = "sglang-sts"

Made = tuple[str, str, tuple[str, ...]]
"""The file, what is in it in a sentence, and what else to know."""


def cost_table_text(file_format: str, paths: Sequence[Path]) -> Made:
    """Cost files, one of each batch size, as an engine's table."""
    if not paths:
        raise UsageError(f"--format {file_format} needs --cost FILE, one of each batch size")
    files = {path: read_cost_file(path) for path in paths}
    first = files[paths[0]]
    _check_same(paths, files)
    contexts = [file.contexts[-1] for file in files.values()]
    profiles = [BatchCosts(file.batch, file.node_counts, cost_table_of(file, path)) for path, file in files.items()]
    context, batches = min(contexts), ", ".join(str(one.batch) for one in sorted(profiles, key=lambda one: one.batch))
    notes = [f"Seconds are those at a context of {context:,} tokens; the form holds one context only."]
    try:
        if file_format == SGLANG:
            text = sampled_text(sampled_steps(profiles, context))
            notes.append("A step is a whole round: drafting, selecting, verifying and committing.")
        else:
            text = curves_text(step_curves(profiles, context, first.block_size - 1))
            notes.append(
                "Selecting and committing are in neither curve. vLLM profiles its own at start, and reads no file."
            )
    except ValueError as error:
        raise CostError(f"{paths[0]}: {error}") from error
    return text, f"Cost table of batch sizes {batches}", tuple(notes)


def _check_same(paths: Sequence[Path], files: dict[Path, CostFile]) -> None:
    first = files[paths[0]]
    batches = [file.batch for file in files.values()]
    twice = [batch for batch in batches if batches.count(batch) > 1]
    if len(paths) > len(files) or twice:
        batch = twice[0] if twice else first.batch
        raise CostError(f"two cost files have the latencies of {batch} texts at a time; give one of each batch size")
    for path, file in files.items():
        if not file.fits(first.target, first.drafter, first.block_size):
            raise CostError(f"{path} has latencies of other models than {paths[0]}; give files of the same models")


def temperatures_text(texts: ExportedTexts) -> Made:
    """SGLang's temperatures of each position, fitted on a trace."""
    parts = []
    with progress_bar(texts.progress, "export", "sequence", len(texts.wanted)) as bar:
        for some in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE, ()):
            parts.append(some.drafted())
            bar.update(len(some.sequences))
    positions = chain_positions(parts) if parts else []
    if not positions or not len(positions[0].right):
        raise TraceError(f"{texts.trace.place} holds no round that a temperature could be fitted on")
    temperatures = [temperature_of(one) for one in positions]
    wanted = set(texts.wanted)
    datasets = sorted({one.prompt.dataset for one in texts.trace.sequences() if one.index in wanted})
    value = {"temperatures": temperatures, "dataset": ", ".join(datasets), "num_samples": len(positions[0].right)}
    notes = (
        "Fitted on the drafter's own probabilities of first candidates; a confidence head has other temperatures.",
        f"A position with fewer than {FEWEST} right or wrong candidates keeps 1.",
    )
    return json.dumps(value, indent=1) + "\n", f"Temperatures of {len(temperatures)} positions", notes
