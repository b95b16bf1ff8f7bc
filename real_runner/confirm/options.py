"""What a person asks of a confirmation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simlab.real_runner.execution.executions import EAGER, check_device_map, check_execution


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """Which models to run on which texts, and how.

    What stands here under the name that it has in `simlab.studies.confirm.request.ConfirmRequest` is explained there.

    Attributes:
        repeats: of each text under each policy, at most.
        until_interval: None: end at the last repeat.
        time_limit_s: end after so many seconds, loading, warming up and the audit counted; None: at the last repeat.
        batch_invariant: see `simlab.real_runner.attention.batch_invariant`.
        channels: where the checkpoints of channels are now, by the channels' names; of others the trace says where.
    """

    out: Path
    target: str | None = None
    draft: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    threads: int | None = None
    limit: int | None = None
    repeats: int = 1
    batch: int = 1
    until_interval: float | None = None
    time_limit_s: float | None = None
    resume: bool = False
    tap_offset: str | None = None
    execution: str = EAGER
    batch_invariant: bool = False
    device_map: str | None = None
    audit_device: str | None = None
    channels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_execution(self.execution, self.batch, self.device)
        others = {
            f"--execution {self.execution}": self.execution != EAGER,
            f"--batch {self.batch}": self.batch != 1,
            "--batch-invariant": self.batch_invariant,
        }
        check_device_map(self.device_map, others)
        named = {f"--batch {self.batch}": self.batch != 1, f"--execution {self.execution}": self.execution != EAGER}
        other = [option for option, is_given in named.items() if is_given]
        if self.batch_invariant and other:
            raise ValueError(
                f"--batch-invariant holds the shapes of passes still that run one text at a time and {EAGER}; got "
                f"{' and '.join(other)}: leave {'it' if len(other) == 1 else 'both'} out"
            )
        for name in ("threads", "limit", "repeats", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if self.until_interval is not None and not 0 < self.until_interval < 1:
            raise ValueError(f"until_interval must lie between 0 and 1, such as 0.03; got {self.until_interval}")
        if self.time_limit_s is not None and not 0 <= self.time_limit_s < math.inf:
            raise ValueError(f"time_limit_s must not be negative; got {self.time_limit_s}")
