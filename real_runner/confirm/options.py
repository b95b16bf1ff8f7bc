"""What a person asks of a confirmation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from simlab.real_runner.execution.executions import EAGER, check_device_map, check_execution


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """Which models to run on which texts, and how.

    Attributes:
        out: the folder of the log and of the results.
        target: a name, folder or Hub id; None: as the trace names it.
        draft: the same.
        limit: at most so many prompts of the trace; None takes all.
        threads: of the CPU; None leaves them as torch has them.
        repeats: how often each text is decoded under each policy, at most.
        batch: texts at a time.
        until_interval: end when the 95 % interval of every speed ratio is no wider to each side than this share of it;
            None: at the last repeat.
        time_limit_s: end after so many seconds, loading, warming up and the audit counted; a prompt that is cut off is
            left out; None: at the last repeat.
        resume: go on with the log that is in ``out``.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the trace was recorded.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        batch_invariant: every pass of the target has one fixed shape; see
            `simlab.real_runner.attention.batch_invariant`.
        device_map: ``auto`` spreads the target over devices; None: one has it.
        channels: where the checkpoints of channels are now, by the channels' names; of others the trace says where.
        audit_device: where the float32 target of the audit runs; ``auto`` spreads it; None: where the run was.
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
