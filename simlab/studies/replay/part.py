"""A replay of one part of the prompts: what it cannot be combined with, and what its file says of the whole."""

from pathlib import Path

from simlab.errors import UsageError, as_usage_error
from simlab.studies.inputs.trace import first_prompts
from simlab.studies.replay.rows import simlab_version
from simlab.traces.reader import Trace
from simlab.traces.results.parts import NotedPart
from simlab.workers.parts import Part, parse_part


def own_part(shard: str | Part | None) -> Part | None:
    """The part that was asked for; None: everything, as the only part there is means too."""
    with as_usage_error():
        part = parse_part(shard) if isinstance(shard, str) else shard
    return None if part is None or part.is_whole else part


def check_can_be_split(part: Part | None, batch: int | None, out: str | Path | None) -> None:
    """Refuse a part where there is none."""
    if part is None:
        return
    if batch is not None:
        raise UsageError("--batch replays all texts together, so it takes no --shard")
    if out is None:
        raise UsageError("--shard makes one part of a result file; name it with --out FILE")


def replayed_part(part: Part, trace: Trace, draft: str, limit: int | None) -> NotedPart:
    """What the file of a part says of the replay that it is a part of."""
    of = {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        "simlab_version": simlab_version(),
        "sequences": len(first_prompts(trace, limit)),
    }
    return NotedPart(part, of)


def part_note(part: Part) -> str:
    """The line that says that a table is of a part."""
    return f"This is part {part} of the prompts alone; `simlab merge` puts the files of all {part.count} together."
