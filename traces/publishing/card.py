"""The card of a published trace: Markdown, below YAML that the Hugging Face Hub reads."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from simlab.traces.format.files import SEQUENCES
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import Trace

TAGS = ("speculative-decoding", "simlab", "simlab-trace")
UNKNOWN = "unknown"
"""The hub's word for a licence that nobody named."""

_WHAT = (
    "A dense trace of speculative decoding, recorded with simlab: at every position of real text, what the drafter "
    "proposes and what the target says. From it every draft-tree policy is replayed exactly, without the models."
)
_HOW = (
    "Only the files that are read are fetched, shard by shard, and each is checked against the digests in "
    "`manifest.json`."
)


def trace_card(trace: Trace, address: str, licence: str = UNKNOWN) -> str:
    """What a trace is, how it was made, and how it is read.

    Args:
        trace: which is published.
        address: at which it will be.
        licence: as the hub names it, such as ``apache-2.0``.
    """
    name = address.rstrip("/").rsplit("/", 1)[-1].partition("@")[0]
    parts = [
        _front_matter(trace, name, licence),
        f"# {_cell(name)}",
        _WHAT,
        "## Reading it",
        f"```sh\npip install simlab\nsimlab replay --trace {shlex.quote(address)} -p chain\n```",
        f"```python\nimport simlab\n\ntrace = simlab.open_trace({json.dumps(address)})\n```",
        _HOW,
        "## Models",
        _table(("", "name", "revision", "sha256"), _models(trace)),
        "## Contents",
        _table(("what", "value"), _contents(trace)),
        "## Texts",
        _table(("dataset", "prompts", "sequences", "tokens"), _texts(trace)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(trace: Trace, name: str, licence: str) -> str:
    """YAML whose values are JSON, which is YAML, so that no name can be anything but a text."""
    files = trace.manifest.held().files
    sets = {"sequences": SEQUENCES, "tokens": "tokens-*.parquet"}
    sets |= {f"draft-{one}": f"draft-{one}-*.parquet" for one in trace.manifest.draft_sets}
    sets |= {f"channel-{one}": f"channel-{one}-*.parquet" for one in trace.manifest.channels}
    there = {one: pattern for one, pattern in sets.items() if any(file.startswith(pattern[:-9]) for file in files)}
    values = {
        "license": licence,
        "pretty_name": name,
        "tags": TAGS,
        "models": sorted({model.name for _, model in _model_ids(trace)}),
        "size_categories": [_size_category(sum(len(one.text) - 1 for one in trace.texts))],
        "configs": [{"config_name": one, "data_files": pattern} for one, pattern in there.items()],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def _size_category(num_rows: int) -> str:
    """The hub's word for a number of rows."""
    steps = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]
    return next((word for most, word in steps if num_rows < most), "10M<n<100M" if num_rows < 10**8 else "100M<n<1B")


def _model_ids(trace: Trace) -> list[tuple[str, ModelInfo]]:
    """The models of a trace, each with what it was there for."""
    manifest = trace.manifest
    drafters = [(f"drafter of {name}", one.model) for name, one in manifest.draft_sets.items()]
    producers = [(f"channel {name}", one.producer) for name, one in manifest.channels.items()]
    return [("target", manifest.target), *drafters, *producers]


def _models(trace: Trace) -> list[tuple[str, ...]]:
    return [(what, one.name, one.revision or "", one.digest) for what, one in _model_ids(trace)]


def _contents(trace: Trace) -> list[tuple[str, object]]:
    manifest, held = trace.manifest, trace.manifest.held()
    sampling = manifest.sampling
    rows: list[tuple[str, object]] = [
        ("trace format", f"simlab-trace, {len(held.files) + 1} files, {_size(trace)}, {len(held.shards)} shards"),
        ("text", f"{held.text_id}, dtype {manifest.dtype}"),
        ("sampling", f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}"),
    ]
    for name, kept in manifest.draft_sets.items():
        said = f"{held.draft_ids[name]}, block {kept.block_size}, at least {kept.min_width} candidates a depth"
        rows.append((f"draft set {name}", f"{said}, exact up to budget {kept.exact_budget}"))
    rows += [(f"channel {name}", f"{held.channel_ids[name]}, {one.kind}") for name, one in manifest.channels.items()]
    rows.append(("recorded with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())))
    return rows


def _size(trace: Trace) -> str:
    """The bytes of all files, in MB."""
    return f"{sum(one.num_bytes for one in trace.manifest.held().files.values()) / 1e6:,.1f} MB"


def _texts(trace: Trace) -> list[tuple[object, ...]]:
    prompts: dict[str, set[str]] = {}
    sequences, tokens = Counter[str](), Counter[str]()
    for one in trace.texts:
        prompts.setdefault(one.prompt.dataset, set()).add(one.prompt.prompt_id)
        sequences[one.prompt.dataset] += 1
        tokens[one.prompt.dataset] += len(one.text)
    return [(name, len(prompts[name]), sequences[name], f"{tokens[name]:,}") for name in prompts]


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """A value in one line of Markdown, in which others' names mean nothing."""
    text = "".join(sign if sign.isprintable() else " " for sign in str(value))
    signs: Mapping[str, str] = {"|": "\\|", "<": "&lt;", "&": "&amp;", "`": "\\`", "[": "\\[", "*": "\\*"}
    return "".join(signs.get(sign, sign) for sign in text)
