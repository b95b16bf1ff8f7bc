"""What is read from elsewhere: the options of ``simlab import``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.errors import UsageError
from simlab.limits import finite_number
from simlab.options import draft_set_option, one_batch_option, option, trace_option
from simlab.studies.inputs.trace import TraceSource
from simlab.traces.artefacts.engine_tables import FORMS
from simlab.traces.artefacts.timings import COUNTS, UNITS

AUTO, TIMINGS = "auto", "timings"

OF_TIMINGS = (
    *("counts", "unit", "format", "out", "machine", "dtype", "target", "batch"),
    *("draft_s", "select_s", "commit_s", "plain_s"),
)
OF_METRICS = ("before", "same_prompts", "max_new_tokens", "first_of_block", "limit")
"""Options that are read with timings, and with counts of an engine, alone."""

_STAGES = "stages that are no pass of the target, the same in every round"
_COUNTED = "counts of an engine or a benchmark"
_COST_FILE = "a cost file of timings"


def _seconds(text: str) -> float:
    try:
        value = finite_number(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise ValueError(f"expected seconds, at least 0; got {text!r}")
    return value


@dataclass(frozen=True)
class ImportOptions:
    """Which files are read, and what they are compared with or made into."""

    DETAILS: ClassVar = """\
What FILE holds is seen from its content, and named in the output.

Timings become a cost file, --out, one for each batch size: CSV with a line of names, or a JSON list of objects. Each
row is a pass of the target: its size (num_tokens, nodes or num_drafted), its time with the unit (latency_ms, seconds),
and where they were varied batch_size and context; several rows of the same sizes are repeated measurements. Other
stages of a round may have columns too (draft_ms). Where the name of the size does not say whether it has the root in
it, --counts must. So do an engine's cost tables: SGLang's JSON of steps a second or its additive one, vLLM's two curves
{"draft_curve": [[requests, ms], ...], "verify_curve": [[tokens, ms], ...]}, or a result of `vllm bench serve
--save-result`, which is one cell. Shapes of such a table that cannot occur are printed.
With --trace the file is for the models of that trace, which simlab cannot verify; without, its models are not stated,
any trace may borrow it, and every table says so. What is not given is printed, and kept as a note in the file.

Counts of speculative decoding are compared with a trace: Prometheus text of vLLM, SGLang, TensorRT-LLM or llama.cpp, of
one served model, a log of vLLM (its lines `SpecDecoding metrics: ...`), the JSON of `vllm bench serve --save-result`
(without --out), the JSON lines of SGLang's bench_serving, and AIPerf's profile_export.jsonl.
Without --same-prompts the counts are those of other traffic, and the question is whether that traffic is like the
trace's: acceptance length and rates by position, with intervals, p-values adjusted for their number. Exit code 1: it is
not. With --same-prompts the requests were the trace's own prompts, each once: every count is predicted. Exit code 1:
they differ. --before subtracts an earlier reading of the same counters.

Candidates that an engine wrote of its own rounds, JSON lines of the format simlab-candidates (its page is
docs/reference/candidates.md), become a trace, --out, where a replay may claim its figures: rows at every root,
normalised over the vocabulary, of greedy texts. Of others, and without --out, counts by depth and rank are printed.

  simlab import timings.csv --trace runs/mine --draft-s 0.0065 --out runs/engine.json
  simlab import caddtree-a800-qwen3-4b --counts root-included --draft-s 0.0065 --machine "NVIDIA A800"
    --dtype bfloat16 --out runs/a800.json
  simlab import dspark_sps.json --batch 8 --plain-s 0.011 --trace runs/mine --out runs/sglang8.json
  simlab replay --trace runs/mine --cost runs/engine.json
  simlab import metrics.txt --before metrics-yesterday.txt --trace runs/mine
  simlab import bench.json --same-prompts --limit 3 --max-new-tokens 32 --trace runs/mine
  simlab import profile_export.jsonl --trace runs/mine --json
  simlab import candidates.jsonl --out runs/engine
  simlab import visited.jsonl"""

    files: Sequence[str | Path] = option(
        ...,
        "timings, candidates, or what an engine or a benchmark counted; or the name of packaged timings",
        "FILE",
        repeats=True,
        positional=True,
    )
    trace: TraceSource | None = trace_option("a recorded trace of the models that were timed or served")
    _: KW_ONLY
    draft_set: str | None = draft_set_option()
    out: str | Path | None = option(None, "the cost file; of candidates the folder of the trace", "FILE", read=Path)
    counts: str | None = option(
        None,
        "what sizes of CSV and lists count: tokens of each text's pass, the root among them; drafted tokens, one "
        "fewer; or tokens of the whole pass of a batch (default: as the name of the column says)",
        choices=COUNTS,
        group=_COST_FILE,
    )
    unit: str | None = option(
        None,
        "of the times of CSV and lists (default: as the name of the column says)",
        choices=tuple(UNITS),
        group=_COST_FILE,
    )
    format: str = option(
        AUTO, "what is expected in FILE; auto recognises it", choices=(AUTO, TIMINGS, *FORMS), group=_COST_FILE
    )
    machine: str = option("", "the device, such as NVIDIA A800", "NAME", group=_COST_FILE)
    dtype: str = option("unknown dtype", "dtype of the models, such as bfloat16", "NAME", group=_COST_FILE)
    target: str | None = option(
        None, "the model that was timed, by its name, where no trace of it is given", "NAME", group=_COST_FILE
    )
    batch: int | None = one_batch_option(
        "take the timings of N texts at a time; of an engine's table it may be any number within (default: a file for "
        "each that was timed; of a table 1, or that of the run)",
        _COST_FILE,
    )
    draft_s: float | None = option(
        None,
        "latency of the stage draft; of an EAGLE-3 head, which drafts token by token, that of one pass: it prices the "
        "head's chains and trees",
        "SECONDS",
        read=_seconds,
        group=_STAGES,
    )
    select_s: float | None = option(None, "latency of the stage select", "SECONDS", read=_seconds, group=_STAGES)
    commit_s: float | None = option(None, "latency of the stage commit", "SECONDS", read=_seconds, group=_STAGES)
    plain_s: float | None = option(
        None, "latency of one token of autoregressive decoding", "SECONDS", read=_seconds, group=_STAGES
    )
    before: str | Path | None = option(
        None, "an earlier Prometheus text of the same server", "FILE", read=Path, group=_COUNTED
    )
    same_prompts: bool = option(False, "the requests were the trace's own prompts, each once, greedily", group=_COUNTED)
    max_new_tokens: int | None = option(None, "that each request asked for (default: as recorded)", "N", group=_COUNTED)
    first_of_block: bool = option(
        False, "the engine drafts the recorded block and keeps its first tokens", group=_COUNTED
    )
    limit: int | None = option(None, "the first N prompts only", "N", group=_COUNTED)

    def check_unread(self, names: Sequence[str], path: str | Path, held: str) -> None:
        """Refuse options that are about files of the other kind.

        Args:
            names: of them.
            path: of the file that was given.
            held: what it holds, in words.
        """
        for name in names:
            if getattr(self, name) != getattr(type(self), name):
                typed = f"--{name.replace('_', '-')}"
                raise UsageError(f"{path} holds {held}, about which {typed} can change nothing; leave it out")

    def one_file(self, what: str) -> str | Path:
        """The only file; ``what`` is held by such files, of which one is imported at a time."""
        if len(self.files) > 1:
            raise UsageError(f"{what} are imported one file at a time; got {len(self.files)} files")
        return self.files[0]
