"""What a trace, a checkpoint, prices, a fitted table, counts, a choice or results hold."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.analysis.crosscheck.diagnosis import FAULTS, Finding, SeenDrafts, findings_of_texts
from simlab.analysis.optimize.finalists import finalist_table, optimism_text, price_text
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import summary_notes, summary_table
from simlab.arrays import Ints
from simlab.errors import ModelError, UsageError, named_or_listed
from simlab.options import option, progress_option, study
from simlab.real_runner.checkpoints.contents import config_file, packaged_checkpoints, stored_tensors
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.networks.parts import explain_checkpoint
from simlab.real_runner.targets.hub_files import ADAPTER_CONFIG, CONFIG, at_revision, fetch, fetch_model, is_hub_id
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import decoder_of
from simlab.studies.inspect.cost import cost_json, cost_text, ngram_json, ngram_text, table_json, table_text
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts import ngram as ngram_file
from simlab.traces.artefacts import table as table_file
from simlab.traces.artefacts.confirmation import FORMAT as CONFIRMATION_FORMAT
from simlab.traces.artefacts.confirmation import SUMMARY, is_confirmation, read_confirmation
from simlab.traces.artefacts.kinds import SCHEMAS, find_file, format_of, looks_like_results, packaged_files, read_schema
from simlab.traces.artefacts.optimum import FORMAT as OPTIMUM_FORMAT
from simlab.traces.artefacts.optimum import PromptSource, read_optimum
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.inspect import TraceReport, check_trace
from simlab.traces.reader import PACKAGED_TRACES, open_trace, packaged_trace
from simlab.traces.results.files import FORMAT as RESULTS_FORMAT
from simlab.traces.results.files import read_results
from simlab.untrusted.visible import ShownText

# What a drafter checkpoint is and holds, and whether it will run, read without torch.


_SAID = ("layer_views", "tap_offset")
_FILES = (".json", ".parquet", ".safetensors")
_NO_CONFIG = "there is no config.json beside it"


def fetched_checkpoint(name: str) -> Path | None:
    """The folder of a drafter that is fetched from the hub; None where a name is rather of a file or a folder here.

    Of another model its configuration is fetched, and not its weights.

    Raises:
        ModelError: it cannot be had, has no configuration, or is no drafter.
    """
    repository = Path(name.partition("@")[0])
    is_elsewhere = len(repository.parts) == 2 and repository.suffix not in _FILES and not repository.parent.is_dir()
    if not is_elsewhere or not is_hub_id(name):
        return None
    try:
        first = fetch("drafter", name, [CONFIG, ADAPTER_CONFIG])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "simlab":
            raise
        raise ModelError(
            f"there is nothing at {name} on this machine, and to look for it on the Hugging Face Hub takes the package "
            f'{error.name}, which is not installed; install it with: pip install "simlab[models]"'
        ) from error
    config = config_file(first.folder)
    if not config.is_file():
        raise ModelError(f"{name!r} has no {CONFIG} on the hub, so it is no drafter that simlab can run")
    read_fields(config)
    return fetch_model("drafter", at_revision(name, first.revision)).folder


def _checkpoint(place: Path) -> tuple[dict[str, object], str]:
    """What the drafter is, if a ``config.json`` lies there, and its tensors, file after file in the order of bytes."""
    config = config_file(place)
    fields, tensors = read_fields(config) if config.exists() else None, stored_tensors(place)
    found = None if fields is None else explain_checkpoint(fields, tensors, place)
    settings = {} if found is None or found.config is None else asdict(found.config)
    problem = _NO_CONFIG if found is None else found.problem
    num_parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    num_bytes = sum(tensor.num_bytes for tensor in tensors.values())
    lines = [
        f"checkpoint {place}",
        f"{len(tensors)} tensors, {num_parameters:,} parameters, {num_bytes:,} bytes",
        "",
    ]
    about = [("will run", f"no: {problem}")] if found is None else found.lines
    lines += [f"{heading.ljust(10)} {text}" for heading, text in about] + [""]
    width = max(map(len, settings), default=0)
    lines += [f"{name.ljust(width)}  {_shown(value)}" for name, value in settings.items() if name not in _SAID]
    lines += [""] if settings else []
    width = max((len(tensor.name) for tensor in tensors.values()), default=0)
    lines += [
        f"{tensor.name.ljust(width)}  {tensor.dtype.ljust(5)} {_shape(tensor.shape)}  {tensor.num_bytes:,}"
        for tensor in tensors.values()
    ]
    value: dict[str, object] = {
        "kind": "checkpoint",
        "path": str(place),
        "format": None if found is None else found.format,
        "will_run": problem is None,
        "problem": problem,
        "config": settings or None,
        "tensors": [
            {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "num_bytes": tensor.num_bytes}
            for tensor in tensors.values()
        ],
    }
    return value, "\n".join(lines)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _shape(shape: tuple[int, ...]) -> str:
    return ("[" + ", ".join(map(str, shape)) + "]").ljust(14)


KINDS = (
    "a trace (folder or address), a drafter checkpoint (folder, *.safetensors or Hub id), a cost file, a fitted table, "
    "the counts of a 3-gram, a choice of `simlab optimize`, a folder of `simlab confirm`, or results (*.parquet)"
)
_TOGETHER = ("text_id", "draft_id", "kind", "cost_id")
_UNPRICED = "No speeds: these rows were replayed without a latency profile."


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(ShownText):
    """What a file or folder holds.

    Attributes:
        value: what ``simlab inspect --json`` prints.
        lines: what ``simlab inspect`` prints.
    """

    value: dict[str, object]
    lines: str

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab inspect --json`` prints."""
        return self.value

    def text(self) -> str:
        """The description as ``simlab inspect`` prints it."""
        return self.lines


@dataclass(frozen=True)
class InspectOptions:
    """What is looked into."""

    DETAILS: ClassVar = """\
A trace is read whole and checked whole: every file, every invariant and every id.
For a drafter checkpoint it says what it is, what it reads of its target, whether it will run
(docs/reference/checkpoints.md), and lists settings and tensors; for a cost file the latency of each stage; for
a fitted table (calibration, ranks) and the counts of a 3-gram what they were made from and their
first values; for a choice of `simlab optimize` the verdict and the finalists; for the folder of a
confirmation its verdict; for a result file the summaries. What comes with simlab may be named without its path.

  simlab inspect runs/dev
  simlab inspect z-lab/Qwen3-8B-DFlash-b16
  simlab inspect eagle3-smollm2-135m
  simlab inspect smollm2-135m-calibration
  simlab inspect my-cost.json --sign          after an edit by hand; says what is vouched for
  simlab inspect --schema cost                what a cost file must hold, for other programs"""

    path: str | Path | None = option(None, f"{KINDS}; or the name of what comes with simlab", "PATH", positional=True)
    progress: bool | None = progress_option()
    _: KW_ONLY
    schema: str | None = option(
        None,
        "print the JSON Schema of a trace's manifest, of cost files or of choices",
        choices=SCHEMAS,
    )
    sign: bool = option(
        False, "vouch for a file of simlab's that you edited: it is checked, and gets the digest of what it says now"
    )


@study(InspectOptions)
def inspect(options: InspectOptions) -> Inspection:
    """Say what a file or folder holds; a trace is read whole and proved whole.

    Raises:
        SimlabError: there is nothing, it is of another kind, or it is damaged.
    """
    if options.schema is not None:
        if options.path is not None or options.sign:
            raise UsageError("--schema is of a kind of file; leave out PATH, or leave out --schema")
        schema = read_schema(options.schema)
        return Inspection(schema, json.dumps(schema, indent=1))
    if options.path is None:
        raise UsageError("name what to inspect: simlab inspect PATH; see `simlab inspect --help`")
    if options.sign:
        # `sign` inspects what it is about to sign, and so imports this module.
        from simlab.studies.inspect.sign import sign  # noqa: PLC0415

        return sign(str(options.path), options.progress)
    path = str(options.path)
    place = Path(path) if "://" in path else _found(path)
    if path in PACKAGED_TRACES and not place.exists():
        place = packaged_trace(path)
        path = str(place)
    is_weights = place.is_file() and place.suffix == ".safetensors"
    if is_weights or (place.is_dir() and config_file(place).is_file()):
        return Inspection(*_checkpoint(place))
    if "://" in path or place.is_dir():
        return Inspection(*_trace(path, options.progress))
    if place.exists():
        return Inspection(*_file(place, format_of(place)))
    packaged = packaged_checkpoints()
    fetched = packaged.get(path) or fetched_checkpoint(path)
    if fetched is None:
        names = [*packaged_files(), *PACKAGED_TRACES, *packaged]
        raise UsageError(f"there is nothing at {path}{named_or_listed(path, names, f'expected {KINDS}')}")
    return Inspection(*_checkpoint(fetched))


def _found(path: str) -> Path:
    """What is named; of the folder of a confirmation its summary."""
    place = find_file(path)
    return place / SUMMARY if is_confirmation(place) else place


def _file(place: Path, named: str | None) -> tuple[dict[str, object], str]:
    """A file by the format that it names; results name none."""
    if named == cost_file.FORMAT:
        cost = cost_file.read_cost_file(place)
        return cost_json(place, cost), cost_text(place, cost)
    if named == table_file.FORMAT:
        table = table_file.read_table_file(place)
        return table_json(place, table), table_text(place, table)
    if named == ngram_file.FORMAT:
        ngram = ngram_file.read_ngram_file(place)
        return ngram_json(place, ngram), ngram_text(place, ngram)
    if named == OPTIMUM_FORMAT:
        return _optimum(place)
    if named == CONFIRMATION_FORMAT:
        return _confirmation(place)
    if named == RESULTS_FORMAT or (named is None and looks_like_results(place)):
        return _results(place)
    raise UsageError(f"{place} is a file of another kind; expected {KINDS}")


def _trace(place: str, progress: bool | None) -> tuple[dict[str, object], str]:
    trace = open_trace(place)
    drafts = trace.manifest.draft_sets
    # Behind a root that was not seen a round begins elsewhere.
    seen = {name: SeenDrafts(kept.is_chain) for name, kept in drafts.items() if kept.root_seen}
    texts = list[tuple[Ints, Ints]]()
    with progress_bar(progress, "inspect", "sequence") as bar:

        def look(record: SequenceRecord) -> None:
            texts.append((record.prompt.token_ids, record.text))
            for name, drafts_seen in seen.items():
                drafts_seen.add(record.recorded(name))
            bar.update()

        report = check_trace(place, look)
    of_texts = findings_of_texts(texts, trace.manifest.stop_token_ids, decoder_of(trace))
    is_sampled = trace.manifest.sampling.temperature > 0
    found = {"": of_texts} | {name: drafts.findings(is_sampled, of_texts) for name, drafts in seen.items()}
    looks = [{"draft_set": name or None, **asdict(one)} for name, some in found.items() for one in some]
    return {"kind": "trace", **_trace_json(report), "looks_like": looks}, "\n".join(
        [_trace_text(report), *_looks_lines(found)]
    )


def _looks_lines(found: Mapping[str, Sequence[Finding]]) -> list[str]:
    """What known faults a trace looks like, a line each."""
    lines = [
        f"looks like {one.fault}{f' ({name})' if name else ''}: {one.evidence}"
        for name, some in found.items()
        for one in some
    ]
    return lines or [f"looks like none of the known faults ({', '.join(FAULTS)})"]


def _trace_json(report: TraceReport) -> dict[str, object]:
    return {
        "path": report.place,
        "whole": True,
        "text_id": report.text_id,
        "prompts": report.num_prompts,
        "sequences": report.num_sequences,
        "tokens": report.num_tokens,
        "stopped": report.num_stopped,
        "bytes": report.num_bytes,
        "sequences_by_dataset": dict(report.sequences_by_dataset),
        "tokens_by_dataset": dict(report.tokens_by_dataset),
        "drafts": {
            name: asdict(draft) | {"bytes_per_row": draft.bytes_per_row} for name, draft in report.drafts.items()
        },
        "channels": {
            name: {
                "kind": report.manifest.channels[name].kind,
                **asdict(channel),
                "bytes_per_row": channel.bytes_per_row,
            }
            for name, channel in report.channels.items()
        },
        "manifest": report.manifest.to_json(),
    }


def _trace_text(report: TraceReport) -> str:
    manifest = report.manifest
    sampling = manifest.sampling
    made = manifest.text_origin
    if manifest.hidden_states is not None:
        made += f"; the target's states were dumped by an engine, in {manifest.hidden_states.dtype}"
    lines = [
        f"trace {report.place}",
        f"text       {report.text_id}, {made}",
        f"target     {manifest.target.label}, vocabulary {manifest.vocab_size:,}, {manifest.dtype}, {manifest.device}",
        (
            f"sampling   temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}, "
            f"seed {sampling.seed}; at most {manifest.max_new_tokens} new tokens"
        ),
        (
            f"size       {report.num_prompts} prompts, {report.num_sequences} sequences ({report.num_stopped} ended by "
            f"themselves), {report.num_tokens:,} tokens, {report.num_bytes:,} bytes"
        ),
    ]
    lines += [
        f"  {dataset}: {num} sequences, {report.tokens_by_dataset[dataset]:,} tokens"
        for dataset, num in report.sequences_by_dataset.items()
    ]
    for name, draft in report.drafts.items():
        kept = manifest.draft_sets[name]
        shares = "  ".join(f"{100 * share:.1f}" for share in draft.true_first_share)
        lines += [
            (
                f"draft set  {name} ({draft.draft_id}), {_kind_of(kept)}block {kept.block_size}, "
                f"exact up to budget {kept.exact_budget}, at least {kept.min_width} candidates per depth"
            ),
            f"  {draft.num_rows:,} rows, {draft.num_candidates:,} candidates, {draft.bytes_per_row:.0f} bytes per row",
            f"  first candidate right, % per depth: {shares}",
        ]
        if draft.decoded_bytes:
            lines.append(f"  {draft.decoded_bytes:,} bytes kept decoded for replays, no part of the trace")
    lines += [line for name in report.channels for line in _channel_lines(report, name)]
    return "\n".join([*lines, "whole: every file, invariant and id was checked"])


def _kind_of(kept: DraftSet) -> str:
    if not kept.root_seen:
        return f"the target itself at {f'noise ({kept.noise})' if kept.noise else 'its own masks'}, the root unseen, "
    return "chain of " if kept.is_chain else ""


def _channel_lines(report: TraceReport, name: str) -> list[str]:
    info, found = report.manifest.channels[name], report.channels[name]
    settings = ", ".join(f"{key} {value}" for key, value in info.settings.items())
    base = "" if info.extends is None else f" on the draft set {info.extends}"
    size = f"{found.num_rows:,} rows, {found.num_scored:,} scored tokens, {found.bytes_per_row:.0f} bytes per row"
    if not found.was_read:
        size = f"{found.num_bytes:,} bytes; this simlab does not read it, so its files were compared with their digests"
    return [
        f"channel    {name} ({found.channel_id}), {info.kind} of {info.producer.name}{base}, {info.dtype}",
        f"  {settings}",
        f"  {size}",
    ]


def _optimum(place: Path) -> tuple[dict[str, object], str]:
    found = read_optimum(place)

    def prompts(source: PromptSource) -> str:
        datasets = ", ".join(source.datasets)
        return f"{source.prompts} prompts ({datasets}) of text {source.text_id}, draft set {source.draft_id}"

    cap = "" if found.node_cap is None else f", at most {found.node_cap} drafted tokens a round"
    lines = [
        f"choice     {place}",
        f"objective  {found.objective}{cap}; {found.searched:,} policies searched",
        *([f"prices     {', '.join(found.cost_ids)}"] if found.cost_ids else []),
        f"chosen on  {prompts(found.chosen_on)}",
        f"reported   {prompts(found.reported_on)}",
        f"to confirm {', '.join(found.run)}",
    ]
    parts = ["\n".join(lines), found.verdict, finalist_table(found), *filter(None, [price_text(found)])]
    parts.append(optimism_text(found))
    value: dict[str, object] = {"kind": "optimum", "path": str(place)}
    return value | found.to_json(), "\n\n".join(parts)


def _confirmation(place: Path) -> tuple[dict[str, object], str]:
    found = read_confirmation(place)
    parts = [f"confirmation {place}\n{found.heading}", found.verdict, found.prediction]
    return {"kind": "confirmation", "path": str(place), **asdict(found)}, "\n\n".join(filter(None, parts))


def _results(place: Path) -> tuple[dict[str, object], str]:
    results = read_results(place)
    if results.is_empty():
        raise UsageError(f"{place} is a result file without rows; make it again with `simlab replay --out FILE`")
    parts = results.partition_by(*_TOGETHER, maintain_order=True)
    tables, rows = [], []
    for part in parts:
        found = summarise(part)
        ids = {name: part[name][0] for name in _TOGETHER}
        rows += [ids | summary.row() for summary in found]
        heading = f"text {ids['text_id']}, drafter {ids['draft_id']}, {ids['kind']}"
        heading += "" if ids["cost_id"] is None else f" with the latency profile {ids['cost_id']}"
        tables.append(f"{heading}\n{summary_table(found)}\n\n{summary_notes(found, _UNPRICED)}")
    value: dict[str, object] = {"kind": "results", "path": str(place), "rows": rows}
    return value, "\n\n".join([f"results {place}, {results.height:,} rows", *tables])
