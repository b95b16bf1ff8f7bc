"""Policies and results written for other programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np

from simlab.analysis.export.engine_costs import (
    FEWEST,
    chain_positions,
    sampled_steps,
    step_curves,
    temperature_of,
)
from simlab.analysis.export.engine_settings import WRITTEN
from simlab.analysis.export.paper import (
    MEASURES,
    NOTHING,
    POLICY,
    PaperOptions,
    choice_table,
    comparison_table,
    labels_of,
    paper_tables,
    slice_names,
)
from simlab.analysis.export.tables import ExportTable, latex, markdown
from simlab.channels.needs import channels_made, channels_read
from simlab.errors import CostError, TraceError, UsageError
from simlab.grid import STEPS_PER_NAT
from simlab.ids import VERSION
from simlab.options import SLICES, batch_sizes, count, option, out_option, paths, study
from simlab.policies.conformance import FORMAT, FORMAT_VERSION, conformance_rounds, stages_of
from simlab.policies.orders.node_order import NEVER
from simlab.policies.parsing.parse import NamedPolicy
from simlab.recorded import RecordedSequence
from simlab.studies.export.engines import TABLED, ExportedTexts, about, engine_file
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import cost_table_of, prices_for_trace
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened, own_blocks
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.result import StudyResult
from simlab.testing.random_texts import random_text_for
from simlab.traces.artefacts.confirmation import results_of
from simlab.traces.artefacts.cost import CostFile, read_cost_file
from simlab.traces.artefacts.engine_tables import SGLANG, VLLM_CURVES, curves_text, sampled_text
from simlab.traces.artefacts.optimum import Optimum, read_optimum
from simlab.traces.reader import Trace
from simlab.traces.results.files import read_results
from simlab.traces.results.rows import Results
from simlab.untrusted.visible import visible_html

# ``simlab export --format conformance``: rounds to test another implementation of a policy against.


_SYNTHETIC_KEPT = 12


def conformance_text(texts: ExportedTexts, options: "ExportOptions") -> tuple[str, str]:
    """The file, and a sentence that says what is in it."""
    costs, trace, draft = paths(options.cost), texts.trace, texts.draft
    if len(costs) > 1:
        raise UsageError(f"rounds are exported with one latency profile; got {len(costs)} times --cost")
    prices = prices_for_trace(costs[0] if costs else None, trace, draft, options.limit)
    policy = texts.policy(options.policy or "", TraceArtefacts(prices, trace, draft))
    lines = [*_recorded_rounds(policy, texts, options.rounds), *_synthetic_rounds(policy, options.synthetic or 0)]
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        for line in (_header(policy, trace, draft, len(lines)), *lines)
    )
    return text, f"{len(lines):,} rounds of {policy.label}"


def _header(policy: NamedPolicy, trace: Trace, draft: str, num_rounds: int) -> dict[str, object]:
    """What the rounds are of, and how many there are."""
    manifest, needs, channels = trace.manifest, policy.policy.needs, channels_made([policy.policy])
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": policy.label,
        "name": policy.name,
        "settings": dict(policy.settings),
        "policy_id": policy.policy_id,
        "artefacts": dict(getattr(policy.policy, "artefacts", {})),
        "top_k": needs.top_k if needs.draft else 0,
        "stages": list(stages_of(policy.policy)),
        "steps_per_nat": STEPS_PER_NAT,
        "target": manifest.target.name,
        "drafter": manifest.draft_sets[draft].model.name,
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        **({"channel_ids": {name: trace.channel_ids[name] for name in channels}} if channels else {}),
        "simlab_version": VERSION,
        "num_rounds": num_rounds,
    }


def _recorded_rounds(policy: NamedPolicy, texts: ExportedTexts, most: int | None) -> Iterator[Mapping[str, object]]:
    """Rounds on the texts of a trace."""
    with progress_bar(texts.progress, "export", "sequence", len(texts.wanted)) as bar:
        for recorded in texts.trace.recorded(texts.draft, texts.wanted, channels_read([policy.policy])):
            prompt = recorded.prompt
            text = f"{prompt.dataset}/{prompt.prompt_id} turn {prompt.turn} sample {prompt.sample}"
            yield from _rounds(policy, recorded, text, most)
            bar.update()


def _synthetic_rounds(policy: NamedPolicy, num_texts: int) -> Iterator[Mapping[str, object]]:
    """Rounds on synthetic texts, the same for the same number; see `simlab.testing.random_texts`."""
    generator = np.random.default_rng(0)
    for index in range(num_texts):
        yield from _rounds(policy, random_text_for(policy.policy, generator, _SYNTHETIC_KEPT), f"made up {index}", None)


def _rounds(
    policy: NamedPolicy, recorded: RecordedSequence, text: str, most: int | None
) -> Iterator[Mapping[str, object]]:
    for round_ in islice(conformance_rounds(policy.policy, recorded), most):
        yield {"text": text} | round_


# ``simlab export --format sglang-sps``, ``vllm-curves`` and ``sglang-sts``: what engines' schedulers read.


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
    profiles = [(file, cost_table_of(file, path)) for path, file in files.items()]
    context, batches = min(contexts), ", ".join(map(str, sorted(file.batch for file in files.values())))
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
        for part in texts.trace.recorded_texts(texts.draft, texts.wanted, ROOTS_AT_ONCE, ()):
            parts.append(part.drafted())
            bar.update(len(part.sequences))
    positions = chain_positions(parts) if parts else []
    if not positions or not len(positions[0][1]):
        raise TraceError(f"{texts.trace.location} holds no round that a temperature could be fitted on")
    temperatures = [temperature_of(position) for position in positions]
    datasets: list[str] = about(texts)["datasets"]
    value = {"temperatures": temperatures, "dataset": ", ".join(datasets), "num_samples": len(positions[0][1])}
    notes = (
        "Fitted on the drafter's own probabilities of first candidates; a confidence head has other temperatures.",
        f"A position with fewer than {FEWEST} right or wrong candidates keeps 1.",
    )
    return json.dumps(value, indent=1) + "\n", f"Temperatures of {len(temperatures)} positions", notes


CONFORMANCE = "conformance"
_MOST_SYNTHETIC = 10_000
TABLES = ("latex", "markdown")
ENGINES = tuple(WRITTEN)
FORMATS = (CONFORMANCE, *ENGINES, *COST_TABLES, TEMPERATURES, *TABLES)

_READ_BY: Mapping[tuple[str, ...], tuple[str, ...]] = {
    (CONFORMANCE, *ENGINES, TEMPERATURES): ("trace", "draft_set", "limit"),
    (CONFORMANCE, *ENGINES): ("policy",),
    (CONFORMANCE, *ENGINES, *COST_TABLES): ("cost",),
    (CONFORMANCE,): ("rounds", "synthetic"),
    tuple(TABLED): ("batch", "block_trace"),
    ("vllm",): ("draft_tokens",),
    (*ENGINES, TEMPERATURES): ("progress",),
    TABLES: ("results", "rows", "columns", "show", "labels", "intervals"),
}
"""Options that some formats read; with the others they are refused."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file for another program.

    Attributes:
        text: its content.
        summary: what is in it, in a sentence.
        notes: what else to know, a sentence or more each; an engine's end with the line that serves the policy, or say
            why it cannot.
    """

    text: str
    summary: str
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return f"<pre>{visible_html(self.text)}</pre>"


@dataclass(frozen=True)
class ExportOptions:
    """What is exported, for which program; or where a trace is sent."""

    DETAILS: ClassVar = """\
Without --out the export goes to standard output, and what to know about it to standard error.

conformance: JSON lines to test an implementation of a policy in another engine against. Each
  line is a round: candidates and what else the policy was given, the tree that it chose, what the
  target said, and what is kept of its pass. docs/reference/conformance.md has the keys, and a reader.
vllm, sglang, tensorrt-llm: settings for a serving engine. The last line starts it, or says that it cannot run the
  policy: with DFlash drafters these engines draft chains only, with an EAGLE-3 head the last two draft its trees, and
  sglang those of an adapter of UNO's, -p uno:budget=31,top_k=4. The line before starts a load test, in which a server
  accepts as many tokens as the policy would. vllm and tensorrt-llm: also how many tokens a chain should draft at each
  batch size, where there are latency profiles of several: --cost FILE for each, or --batch, which works them out from
  the profile of one text and says so.
tensorrt-edge-llm: flags of that engine and lines that build it, of a chain, an EAGLE-3 head, or the engine's own tree
  on a DFlash drafter, -p edge-llm:budget=31,top_k=8.
aisimulate: the speculation of an engine of AISimulate's, and flags of Dynamo, of a chain.
modelopt: speculation_profile.json of NVIDIA's Model-Optimizer, predicted; experimental, its schema is under review.
sglang-sps, vllm-curves: cost tables of the engines' schedulers, from cost files, one of each batch size.
sglang-sts: a temperature for each position of a block, fitted on the trace.
latex, markdown: one table of a result file, for a paper or a page; --columns dataset: policies by data sets. Bold is
  the highest of each column, and all that a paired test does not tell from it. LaTeX needs booktabs.
--push sends a finished trace with a card, README.md: its own files, each checked before. A repository on the hub is
  private unless --public is given; --dry-run prints the files and the card, and asks nobody.
docs/how_to/export.md says what each field is, where it was read, and what cannot be expressed.

  simlab export --format conformance -p ddtree:budget=16 --limit 2 --out ddtree.jsonl
  simlab export --format vllm -p chain --batch 1,2,4 --out vllm.json
  simlab export --format sglang -p chain --out sglang.yaml
  simlab export --format tensorrt-llm -p chain --cost one.json --cost eight.json --out extra.yaml
  simlab export --format sglang-sps --cost one.json --cost eight.json --out dspark_sps.json
  simlab export --format latex --results results.parquet --columns dataset --out table.tex
  simlab export --format markdown --results results.parquet --show speedup --intervals
    --labels "ddtree:budget=16=DDTree (16)"
  simlab export --push hf://datasets/ORG/NAME --trace runs/mine --license apache-2.0 --dry-run"""

    file_format: str | None = option(
        None, f"what to write: {', '.join(FORMATS)}", "FORMAT", choices=FORMATS, names="--format", one_of="what!"
    )
    policy: str | None = option(
        None,
        "see `simlab policies`; one point",
        "POLICY",
        names="-p --policy",
        group="of a policy on a trace",
    )
    _: KW_ONLY
    push: str | None = option(
        None,
        "send --trace with a card: hf://datasets/OWNER/NAME[@REVISION][/FOLDER], s3://BUCKET/PREFIX, or a folder",
        "PLACE",
        one_of="what!",
    )
    out: str | Path | None = out_option("the file to write (default: standard output)", "", "out.json")
    trace: TraceSource | None = option(
        None, "a recorded trace (default: the packaged one)", "DIR", group="of a policy on a trace"
    )
    draft_set: str | None = option(
        None, "the draft set, where the trace holds more than one", "NAME", group="of a policy on a trace"
    )
    cost: Sequence[str | Path] = option(
        (),
        "latency profile: a file of `simlab profile` or `simlab import`, or the name of a packaged one; "
        "for a table of batch sizes one of each",
        "FILE",
        read=Path,
        repeats=True,
        group="of a policy on a trace",
    )
    limit: int | None = option(None, "the first N prompts only", "N", group="of a policy on a trace")
    batch: Sequence[int] | None = option(
        None,
        "batch sizes of the table; those without a cost file of their own are worked out from the profile of one "
        "text, as `simlab replay --what-if batch=N` does, and marked",
        "N,N,...",
        read=batch_sizes,
        group="of a policy on a trace",
    )
    block_trace: Sequence[TraceSource] = option(
        (),
        "a trace of the same texts that was recorded with another --block; may be repeated. The table then has "
        "the lengths of these blocks alone, as an engine drafts them",
        "DIR",
        repeats=True,
        group="of a policy on a trace",
    )
    draft_tokens: int | None = option(
        None,
        "tokens a round drafts in vLLM's load test, such as a tree's budget, so that passes are as wide "
        "(default: as deep as the policy drafts)",
        "N",
        read=count(1, NEVER - 1),
        group="of a policy on a trace",
    )
    rounds: int | None = option(
        None, "conformance: the first N rounds of each text only", "N", group="of a policy on a trace"
    )
    synthetic: int | None = option(
        None,
        "conformance: also rounds of N short synthetic texts, many with exact ties",
        "N",
        read=count(1, _MOST_SYNTHETIC),
        group="of a policy on a trace",
    )
    progress: bool | None = option(
        None, "a progress bar; by default on a terminal, after two seconds", group="of a policy on a trace"
    )
    public: bool = option(False, "a repository that is made may be seen by everybody", group="with --push")
    license: str | None = option(
        None, "of the texts, as the hub names it, such as apache-2.0", "ID", group="with --push"
    )
    dry_run: bool = option(False, "print what would be sent, and send nothing", group="with --push")
    results: str | Path | StudyResult | None = option(
        None,
        "a file of `simlab replay --out` or of a run, or what `simlab optimize --out` wrote",
        "FILE",
        read=Path,
        group="of results",
    )
    rows: str | None = option(
        None, "what stands in the rows (default policy)", choices=(POLICY, *SLICES), group="of results"
    )
    columns: str | None = option(
        None,
        "what stands in the columns, and all together behind it (default none)",
        choices=(*SLICES, POLICY, NOTHING),
        group="of results",
    )
    show: str | Sequence[str] | None = option(
        None,
        f"measures, separated by commas: {', '.join(MEASURES)} (default: acceptance_length, and speedup where known)",
        "MEASURE,...",
        group="of results",
    )
    labels: Sequence[str] | Mapping[str, str] = option(
        (),
        "what a policy or data set is called: 'ddtree:budget=16=DDTree (16)'; may be repeated",
        "NAME=LABEL",
        repeats=True,
        group="of results",
    )
    intervals: bool = option(False, "95 % intervals behind the numbers", group="of results")


@study(ExportOptions)
def export(options: ExportOptions) -> ExportedFile:
    """Write a policy on a trace, or the table of a result file, in the format of another program.

    Raises:
        UsageError: an option is given that the format does not read, or one is missing.
        SimlabError: trace, prices or results do not hold what is asked for.
    """
    if options.file_format is None:
        raise UsageError(f"expected a format, one of {', '.join(FORMATS)}")
    for formats, names in _READ_BY.items():
        given = [name for name in names if getattr(options, name) not in (None, (), False)]
        if given and options.file_format not in formats:
            typed = f"--{given[0].replace('_', '-')}"
            raise UsageError(f"{typed} is read with --format {', '.join(formats)}, not with {options.file_format}")
    if options.file_format in TABLES:
        if options.results is None:
            raise UsageError(f"--format {options.file_format} needs --results, such as --results results.parquet")
        tables = _tables(options.results, options)
        text = latex(tables) if options.file_format == "latex" else markdown(tables)
        where = options.results if isinstance(options.results, str | Path) else type(options.results).__name__
        return ExportedFile(text, f"{len(tables)} table{'' if len(tables) == 1 else 's'} of {where}")
    if options.file_format in COST_TABLES:
        return ExportedFile(*cost_table_text(options.file_format, paths(options.cost)))
    if options.file_format == TEMPERATURES:
        return ExportedFile(*temperatures_text(_texts(opened(options.trace), options)))
    if options.policy is None:
        raise UsageError(f"--format {options.file_format} needs --policy, such as -p ddtree:budget=16")
    recording = opened(options.trace, paths(options.cost))
    if options.file_format == CONFORMANCE:
        return ExportedFile(*conformance_text(_texts(recording, options), options))
    own = own_blocks(
        recording, recording.draft_name(options.draft_set), [opened(source) for source in options.block_trace]
    )
    return ExportedFile(*engine_file(replace(_texts(recording, options), own_blocks=own), options))


def _tables(source: str | Path | StudyResult, options: ExportOptions) -> list[ExportTable]:
    """The tables of a result file, of what optimize chose, or of a result of a study."""
    if isinstance(source, StudyResult):
        exported = source.exported
        if exported is None:
            kind = type(source).__name__
            raise UsageError(f"there is no table of a {kind}; give the result of replay, compare or optimize")
    else:
        exported = _read(Path(source))
    if isinstance(exported, Results):
        names = [*exported["policy"].unique(maintain_order=True), *slice_names(exported)]
    elif isinstance(exported, Optimum):
        names = [str(row.get("policy")) for row in exported.rows]
    else:
        names = list(dict.fromkeys(label for comparison in exported for label in (comparison.first, comparison.second)))
    labels = dict(options.labels) if isinstance(options.labels, Mapping) else labels_of(options.labels, names)
    if isinstance(exported, Results):
        show = tuple(options.show.split(",")) if isinstance(options.show, str) else tuple(options.show or ())
        columns = options.columns or (POLICY if options.rows not in (None, POLICY) else NOTHING)
        layout = PaperOptions(options.rows or POLICY, columns, show, labels, options.intervals)
        return paper_tables(exported, layout)
    for name in ("rows", "columns", "show"):
        if getattr(options, name) not in (None, ()):
            raise UsageError(f"--{name} lays out the rows of a replay or a run; --results holds another kind of result")
    return [choice_table(exported, labels) if isinstance(exported, Optimum) else comparison_table(exported, labels)]


def _read(path: Path) -> Results | Optimum:
    """Result rows, or a choice of optimize: JSON."""
    return read_optimum(path) if path.suffix == ".json" else read_results(results_of(path))


def _texts(trace: Trace, options: ExportOptions) -> ExportedTexts:
    draft, wanted = trace.draft_name(options.draft_set), first_prompts(trace, options.limit)
    return ExportedTexts(trace, draft, wanted, options.progress, options.limit)
