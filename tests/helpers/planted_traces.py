"""Made-up traces and prices with a best policy that is known, and what policies come to on them by hand."""

from dataclasses import replace
from pathlib import Path

from made_up_costs import EMPTY
from synthetic_traces import DRAFT, SyntheticHeads, shards_of, synthetic_manifest, synthetic_sequences

from simlab.cost import PLAIN, STAGES
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.reader import Trace
from simlab.traces.writer import TraceWriter

PLANTED = 6
"""Drafted tokens that cost nothing; each more costs as much as a round."""


def write_trace(folder: Path, name: str, seed: int, target: str = "synthetic") -> Path:
    """A made-up trace whose prompts have names, and tokens, of their own."""
    manifest = synthetic_manifest(length=24, depth=7)
    records = [
        replace(sequence, prompt=replace(sequence.prompt, prompt_id=f"{name}-{sequence.prompt.prompt_id}"))
        for sequence in synthetic_sequences(seed, num_sequences=24, length=24, heads=SyntheticHeads(0.9, 0.97))
    ]
    shards = list(shards_of(records, 4))
    models = replace(manifest, target=replace(manifest.target, digest=target))
    writer = TraceWriter(folder, models, len(shards), resume=False)
    for shard, part in enumerate(shards):
        writer.write(shard, part)
    writer.finish({})
    return folder


def stairs(free: int, slope: float) -> CostFile:
    """Prices that are flat up to ``free`` drafted tokens, of every size that is searched and comes near the best."""
    file = replace(EMPTY, node_counts=(*range(17), 64), contexts=(4, 256), repeats=1)
    samples = {}
    for stage, count, context in file.cells():
        base = {"draft": 0.001, "verify": 0.010, PLAIN: 0.0105}.get(stage, 0.0001)
        more = slope * max(count - free, 0) if stage == "verify" else 0.0
        samples[stage, count, context] = (base + more,)
    return replace(file, samples=samples)


def tokens_per_s(trace: Trace, typed: str, file: CostFile, wanted: "set[tuple[str, str]] | None" = None) -> float:
    """Round by round, in plain Python."""
    (policy,), table = parse_policies([typed]), cost_table_of(file)
    tokens, seconds = 0, 0.0
    for text in trace.recorded(trace.draft_name()):
        if wanted is not None and (text.prompt.dataset, text.prompt.prompt_id) not in wanted:
            continue
        for each in rounds(policy.policy, text):
            tokens += each.num_committed
            for stage in (PLAIN,) if typed == "ar" else STAGES:
                seconds += float(table.curve(stage, len(text.prompt.token_ids) + each.position)[each.num_drafted])
    return tokens / seconds


def rows_of(trace: Trace) -> list[bytes]:
    """The ids of a made-up trace's candidates, text after text."""
    return [sequence.rows.ids.tobytes() for sequence in trace.recorded(DRAFT) if sequence.rows is not None]
