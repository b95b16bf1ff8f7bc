"""What a trace, a checkpoint, prices, a fitted table, counts, a choice or results hold."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from simlab.analysis.crosscheck.diagnosis import FAULTS, Finding, SeenDrafts, findings_of_texts
from simlab.analysis.optimize.finalists import finalist_table, optimism_text, price_text
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import summary_notes, summary_table
from simlab.arrays import Ints
from simlab.errors import ModelError, UsageError, named_or_listed
from simlab.options import option, progress_option, study
from simlab.real_runner.checkpoints.contents import config_file, packaged_checkpoints, stored_tensors
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.networks.known import layout_of, read_fields
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
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.inspect import check_trace
from simlab.traces.reader import PACKAGED_TRACES, open_trace, packaged_trace
from simlab.traces.results.files import FORMAT as RESULTS_FORMAT
from simlab.traces.results.files import read_results, results_part
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


def _checkpoint(path: Path) -> tuple[dict[str, object], str]:
    """What the drafter is, if a ``config.json`` lies there, and its tensors, file after file in the order of bytes."""
    config = config_file(path)
    fields, tensors = read_fields(config) if config.exists() else None, stored_tensors(path)
    drafter: DFlashConfig | None = None
    problem: str | None = _NO_CONFIG
    about = [("will run", f"no: {problem}")]
    if fields is not None:
        drafter, problem, about = explain_checkpoint(fields, tensors, path)
    settings = {} if drafter is None else asdict(drafter)
    num_parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    num_bytes = sum(tensor.num_bytes for tensor in tensors.values())
    lines = [
        f"checkpoint {path}",
        f"{len(tensors)} tensors, {num_parameters:,} parameters, {num_bytes:,} bytes",
        "",
    ]
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
        "path": str(path),
        "format": None if fields is None else layout_of(fields).name,
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
    location = Path(path) if "://" in path else _file_named(path)
    if path in PACKAGED_TRACES and not location.exists():
        location = packaged_trace(path)
        path = str(location)
    is_weights = location.is_file() and location.suffix == ".safetensors"
    if is_weights or (location.is_dir() and config_file(location).is_file()):
        return Inspection(*_checkpoint(location))
    if "://" in path or location.is_dir():
        return Inspection(*_trace(path, options.progress))
    if location.exists():
        return Inspection(*_file(location, format_of(location)))
    packaged = packaged_checkpoints()
    fetched = packaged.get(path) or fetched_checkpoint(path)
    if fetched is None:
        names = [*packaged_files(), *PACKAGED_TRACES, *packaged]
        raise UsageError(f"there is nothing at {path}{named_or_listed(path, names, f'expected {KINDS}')}")
    return Inspection(*_checkpoint(fetched))


def _file_named(path: str) -> Path:
    """What is named; of the folder of a confirmation its summary."""
    file = find_file(path)
    return file / SUMMARY if is_confirmation(file) else file


def _file(path: Path, named: str | None) -> tuple[dict[str, object], str]:
    """A file by the format that it names; results name none."""
    if named == cost_file.FORMAT:
        cost = cost_file.read_cost_file(path)
        return cost_json(path, cost), cost_text(path, cost)
    if named == table_file.FORMAT:
        table = table_file.read_table_file(path)
        return table_json(path, table), table_text(path, table)
    if named == ngram_file.FORMAT:
        ngram = ngram_file.read_ngram_file(path)
        return ngram_json(path, ngram), ngram_text(path, ngram)
    if named == OPTIMUM_FORMAT:
        return _optimum(path)
    if named == CONFIRMATION_FORMAT:
        return _confirmation(path)
    if named == RESULTS_FORMAT or (named is None and looks_like_results(path)):
        return _results(path)
    raise UsageError(f"{path} is a file of another kind; expected {KINDS}")


def _trace(location: str, progress: bool | None) -> tuple[dict[str, object], str]:
    trace = open_trace(location)
    drafts = trace.manifest.draft_sets
    # Behind a root that was not seen a round begins elsewhere.
    seen = {name: SeenDrafts(draft_set.is_chain) for name, draft_set in drafts.items() if draft_set.root_seen}
    texts = list[tuple[Ints, Ints]]()
    with progress_bar(progress, "inspect", "sequence") as bar:

        def look(record: SequenceRecord) -> None:
            texts.append((record.prompt.token_ids, record.text))
            for name, drafts_seen in seen.items():
                drafts_seen.add(record.recorded(name))
            bar.update()

        report = check_trace(location, look)
    of_texts = findings_of_texts(texts, trace.manifest.stop_token_ids, decoder_of(trace))
    is_sampled = trace.manifest.sampling.temperature > 0
    findings = {"": of_texts} | {name: drafts.findings(is_sampled, of_texts) for name, drafts in seen.items()}
    looks = [
        {"draft_set": name or None, **asdict(finding)} for name, of_draft in findings.items() for finding in of_draft
    ]
    return {"kind": "trace", **report, "looks_like": looks}, "\n".join(
        [_trace_text(report, trace.manifest), *_looks_lines(findings)]
    )


def _looks_lines(findings: Mapping[str, Sequence[Finding]]) -> list[str]:
    """What known faults a trace looks like, a line each."""
    lines = [
        f"looks like {finding.fault}{f' ({name})' if name else ''}: {finding.evidence}"
        for name, of_draft in findings.items()
        for finding in of_draft
    ]
    return lines or [f"looks like none of the known faults ({', '.join(FAULTS)})"]


def _trace_text(report: Mapping[str, Any], manifest: Manifest) -> str:
    sampling = manifest.sampling
    made = manifest.text_origin
    if manifest.hidden_states is not None:
        made += f"; the target's states were dumped by an engine, in {manifest.hidden_states.dtype}"
    lines = [
        f"trace {report['path']}",
        f"text       {report['text_id']}, {made}",
        f"target     {manifest.target.label}, vocabulary {manifest.vocab_size:,}, {manifest.dtype}, {manifest.device}",
        (
            f"sampling   temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}, "
            f"seed {sampling.seed}; at most {manifest.max_new_tokens} new tokens"
        ),
        (
            f"size       {report['prompts']} prompts, {report['sequences']} sequences ({report['stopped']} ended by "
            f"themselves), {report['tokens']:,} tokens, {report['bytes']:,} bytes"
        ),
    ]
    lines += [
        f"  {dataset}: {num} sequences, {report['tokens_by_dataset'][dataset]:,} tokens"
        for dataset, num in report["sequences_by_dataset"].items()
    ]
    for name, draft in report["drafts"].items():
        draft_set = manifest.draft_sets[name]
        shares = "  ".join(f"{100 * share:.1f}" for share in draft["true_first_share"])
        lines += [
            (
                f"draft set  {name} ({draft['draft_id']}), {_kind_of(draft_set)}block {draft_set.block_size}, "
                f"exact up to budget {draft_set.exact_budget}, at least {draft_set.min_width} candidates per depth"
            ),
            (
                f"  {draft['num_rows']:,} rows, {draft['num_candidates']:,} candidates, "
                f"{draft['bytes_per_row']:.0f} bytes per row"
            ),
            f"  first candidate right, % per depth: {shares}",
        ]
        if draft["decoded_bytes"]:
            lines.append(f"  {draft['decoded_bytes']:,} bytes kept decoded for replays, no part of the trace")
    lines += [line for name, channel in report["channels"].items() for line in _channel_lines(name, channel, manifest)]
    return "\n".join([*lines, "whole: every file, invariant and id was checked"])


def _kind_of(draft_set: DraftSet) -> str:
    if not draft_set.root_seen:
        slots = f"noise ({draft_set.noise})" if draft_set.noise else "its own masks"
        return f"the target itself at {slots}, the root unseen, "
    return "chain of " if draft_set.is_chain else ""


def _channel_lines(name: str, checked: Mapping[str, Any], manifest: Manifest) -> list[str]:
    info = manifest.channels[name]
    settings = ", ".join(f"{key} {value}" for key, value in info.settings.items())
    base = "" if info.extends is None else f" on the draft set {info.extends}"
    if checked["was_read"]:
        per_row = f"{checked['bytes_per_row']:.0f} bytes per row"
        size = f"{checked['num_rows']:,} rows, {checked['num_scored']:,} scored tokens, {per_row}"
    else:
        size = (
            f"{checked['num_bytes']:,} bytes; this simlab does not read it, so its files were compared with their "
            "digests"
        )
    return [
        f"channel    {name} ({checked['channel_id']}), {info.kind} of {info.producer.name}{base}, {info.dtype}",
        f"  {settings}",
        f"  {size}",
    ]


def _optimum(path: Path) -> tuple[dict[str, object], str]:
    optimum = read_optimum(path)

    def prompts(source: PromptSource) -> str:
        datasets = ", ".join(source.datasets)
        return f"{source.prompts} prompts ({datasets}) of text {source.text_id}, draft set {source.draft_id}"

    cap = "" if optimum.node_cap is None else f", at most {optimum.node_cap} drafted tokens a round"
    lines = [
        f"choice     {path}",
        f"objective  {optimum.objective}{cap}; {optimum.searched:,} policies searched",
        *([f"prices     {', '.join(optimum.cost_ids)}"] if optimum.cost_ids else []),
        f"chosen on  {prompts(optimum.chosen_on)}",
        f"reported   {prompts(optimum.reported_on)}",
        f"to confirm {', '.join(optimum.run)}",
    ]
    parts = ["\n".join(lines), optimum.verdict, finalist_table(optimum), *filter(None, [price_text(optimum)])]
    parts.append(optimism_text(optimum))
    value: dict[str, object] = {"kind": "optimum", "path": str(path)}
    return value | optimum.to_json(), "\n\n".join(parts)


def _confirmation(path: Path) -> tuple[dict[str, object], str]:
    confirmed = read_confirmation(path)
    parts = [f"confirmation {path}\n{confirmed.heading}", confirmed.verdict, confirmed.prediction]
    return {"kind": "confirmation", "path": str(path), **asdict(confirmed)}, "\n\n".join(filter(None, parts))


def _results(path: Path) -> tuple[dict[str, object], str]:
    results = read_results(path, whole=False)
    if results.is_empty():
        raise UsageError(f"{path} is a result file without rows; make it again with `simlab replay --out FILE`")
    noted = results_part(path)
    of_replay = [] if noted is None else [noted.part.note]
    parts = results.partition_by(*_TOGETHER, maintain_order=True)
    tables, rows = [], []
    for part in parts:
        summaries = summarise(part)
        ids = {name: part[name][0] for name in _TOGETHER}
        rows += [ids | summary.row() for summary in summaries]
        heading = f"text {ids['text_id']}, drafter {ids['draft_id']}, {ids['kind']}"
        heading += "" if ids["cost_id"] is None else f" with the latency profile {ids['cost_id']}"
        tables.append(f"{heading}\n{summary_table(summaries)}\n\n{summary_notes(summaries, _UNPRICED)}")
    value: dict[str, object] = {"kind": "results", "path": str(path)}
    value |= {"part": None if noted is None else str(noted.part), "rows": rows}
    return value, "\n\n".join([f"results {path}, {results.height:,} rows", *of_replay, *tables])
