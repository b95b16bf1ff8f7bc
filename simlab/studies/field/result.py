"""The field as it is read: tables by size, what was left out, and the one file that holds every figure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.table.text import aligned, within_width
from simlab.studies.field.rows import ALL, Row
from simlab.studies.field.systems import BASELINE, FASTEST, NODES
from simlab.studies.result import StudyResult
from simlab.traces.format.files import write_beside

FORMAT, FORMAT_VERSION = "simlab-field", 1

_SIZES = (*map(str, NODES), FASTEST)


@dataclass(frozen=True, eq=False, repr=False)
class FieldResult(StudyResult):
    """Every system of the field on the same prompts.

    Attributes:
        facts: of the machine, the models, the prompts and the size of the field; JSON values.
        rows: of each policy, on all prompts and on each data set.
        bounds: what no policy can exceed, by draft set.
        left_out: systems that could not run, and why.
        seconds: of each step.
        has_failed: whether a text of the runs is not the target's, or rounds are not those of their replay.
    """

    facts: Mapping[str, object]
    rows: Sequence[Row]
    bounds: Sequence[Row]
    left_out: Mapping[str, str]
    seconds: Mapping[str, float]
    has_failed: bool

    def to_json(self) -> dict[str, object]:
        """What ``field.json`` holds and ``--json`` prints."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **self.facts,
            "rows": list(self.rows),
            "bounds": list(self.bounds),
            "left_out": dict(self.left_out),
            "seconds": dict(self.seconds),
            "has_failed": self.has_failed,
        }

    def text(self) -> str:
        """A table of each size, on all prompts."""
        parts = [self._of_size(size) for size in _SIZES]
        if self.left_out:
            parts.append("Left out: " + "; ".join(f"{name}: {why}" for name, why in self.left_out.items()) + ".")
        parts.append(
            f"Gains are over {BASELINE} of the same size, on the same prompts, 95 %; * marks a reconstruction. "
            "Predicted gains in speed are given within a draft set alone, since profiles were measured one after the "
            "other. Speedups are over autoregressive decoding. GPU-like: what if a pass of up to 64 tokens took as "
            "long as one of 64."
        )
        return "\n\n".join(part if "\n" in part else within_width(part) for part in parts)

    def write(self, path: Path) -> None:
        """Write all figures as JSON, a row a line."""
        found = self.to_json()
        blocks = []
        for key, value in found.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                lines = ",\n".join("  " + json.dumps(one, allow_nan=False) for one in value)
                blocks.append(f" {json.dumps(key)}: [\n{lines}\n ]")
            else:
                blocks.append(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
        text = "{\n" + ",\n".join(blocks) + "\n}\n"
        write_beside(path, lambda file: file.write(text.encode()))

    def _of_size(self, size: str) -> str:
        title = "Each at its fastest setting on dev" if size == FASTEST else f"At most {size} drafted tokens a round"
        what, gain = ("speed", "gain_speed") if size == FASTEST else ("tokens", "gain_tokens")
        head = ["system", "policy", "tokens", f"{what}, gain %", "predicted", "measured", "GPU-like"]
        rows = [one for one in self.rows if one["size"] == size and one["slice"] == ALL]
        cells = [head, *(_cells(one, gain) for one in rows)]
        return f"{title}\n{aligned(cells, [True, True, *[False] * 5])}"


def _cells(one: Row, gain: str) -> list[str]:
    mark = "*" if one["reconstruction"] else ""
    return [
        f"{one['system']}{mark}",
        str(one["policy"])[:60],
        with_ends(one, "acceptance_length", 2),
        with_ends(one, gain, 1, 100),
        with_ends(one, "predicted_speedup", 2),
        with_ends(one, "measured_speedup", 2),
        with_ends(one, "gpu_like_speedup", 2),
    ]


def with_ends(one: Row, name: str, digits: int, scale: float = 1) -> str:
    """A figure of a row and its 95 % interval, with so many decimals; empty where it is not known."""
    value, low, high = (one[key] for key in (name, f"{name}_low", f"{name}_high"))
    if not isinstance(value, float):
        return ""
    text = f"{scale * value:.{digits}f}"
    if not isinstance(low, float) or not isinstance(high, float):
        return text
    return f"{text} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
