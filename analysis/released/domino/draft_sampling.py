"""Their ablation of how Domino's chain drafts above temperature 0: the most probable candidate, or a sampled one.

DominoTree's author released the chain's records with `--sample-draft` and without, of three datasets.
"""

import re
from collections.abc import Sequence

import polars as pl

from simlab.analysis.released.domino.records import DATASETS
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import prompt_ratio
from simlab.analysis.table.text import aligned
from simlab.errors import SimlabError

FOLDER = "results/raw/draft_sampling_ablation"
_NAME = re.compile(rf"{FOLDER}/draftsample_(?P<dataset>[\w-]+)_T(?P<temperature>[\d.]+)_on\.jsonl")


def draft_sampling(files: ReleasedFiles) -> list[dict[str, object]]:
    """Macro averages of the chain with greedy and with sampled candidates, and their ratio, paired by prompt.

    Raises:
        SimlabError: a file holds something else.
    """
    found: list[dict[str, object]] = []
    for name in sorted(files.release.files):
        matched = _NAME.fullmatch(name)
        if matched is None:
            continue
        dataset, temperature = matched["dataset"], matched["temperature"]
        sampled = _chain(files, name, dataset)
        both = _chain(files, name.replace("_on.jsonl", "_off.jsonl"), dataset).join(
            sampled, on=["dataset", "prompt", "turn"], suffix="_sampled"
        )
        found.append(
            {
                "dataset": dataset,
                "temperature": temperature,
                "turns": both.height,
                **prompt_ratio(both, mean=1, one=-1).row("greedy_macro"),
                **prompt_ratio(both, mean_sampled=1, one=-1).row("sampled_macro"),
                **prompt_ratio(both, mean=1, mean_sampled=-1).row("ratio"),
            }
        )
    return sorted(found, key=lambda row: (str(row["temperature"]), str(row["dataset"])))


def draft_sampling_text(rows: Sequence[dict[str, object]]) -> str:
    """The rows as a table."""
    lines = [["their ablation, Qwen3-4B, chain", "", "greedy", "sampled", "greedy over sampled [95 %]"]]
    for row in rows:
        low, high = (float(str(row[f"ratio_ci_{end}"])) for end in ("low", "high"))
        ratio = f"{float(str(row['ratio'])):.3f} [{low:.3f}, {high:.3f}]"
        means = [f"{float(str(row[f'{key}_macro'])):.2f}" for key in ("greedy", "sampled")]
        name = DATASETS.get(str(row["dataset"]), str(row["dataset"]))
        lines.append([f"T={row['temperature']}", name, *means, ratio])
    return aligned(lines, [True, True, False, False, False])


def _chain(files: ReleasedFiles, name: str, dataset: str) -> pl.DataFrame:
    rows = [
        (dataset, one.get("sample_idx"), one.get("turn_index"), one.get("mean_accept"))
        for one in files.objects(name)
        if one.get("method") == "chain"
    ]
    schema = {"dataset": pl.String, "prompt": pl.Int64, "turn": pl.Int64, "mean": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row", strict=False)
    if table.is_empty() or any(table.null_count().row(0)):
        raise SimlabError(f"{name} has no records of the chain, or one without a turn or a mean")
    return table.with_columns(pl.lit(1).alias("one"))
