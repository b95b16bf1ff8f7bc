"""Records in the form of slin-zhq/Domino-Tree, made up, small, with two datasets and three prompts each."""

import csv
import io
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from simlab.studies.reproduce.domino.lossless import END_OF_TEXT
from simlab.studies.reproduce.domino.pairs import RIVALS, ROLLUPS
from simlab.studies.reproduce.domino.records import MODELS, TEMPERATURES, Model
from simlab.studies.reproduce.domino.sessions import ABLATION, BASELINE_SESSION

PROMPTS = {"gsm8k": (4, 1), "mt-bench": (3, 2)}
"""Prompts and turns of each dataset."""

Record = dict[str, Any]


def made_up_contents(seed: int = 7) -> dict[str, str]:
    """All files of a release, tables worked out in plain Python by their rules."""
    chance = random.Random(seed)
    contents: dict[str, str] = {}
    for model in MODELS:
        cells, pairs, printed = [], [], ["# Table"]
        for temperature in TEMPERATURES:
            domino = _domino_files(chance, contents, model, temperature)
            tree = _program_files(chance, contents, model, temperature, "dominotree", ("ar", "chain", "dominotree@16"))
            others = _program_files(
                chance, contents, model, temperature, "baseline_ddtree_caddtree",
                ("baseline", "dflash", "ddtree_tb16", "caddtree"),
            )  # fmt: skip
            printed += ["", f"## Temperature = {temperature}", ""]
            cells += _cells(model, temperature, domino, printed)
            printed += _printed_rivals(model, others)
            pairs += _pairs(temperature, model, domino, tree, others)
        contents[model.table("table1_cells")] = _csv(cells)
        contents[model.table("pairwise_ci")] = _csv(pairs)
        contents[f"results/tables_gpunative/table1{model.suffix}.md"] = "\n".join(printed)
    return contents | _ladder_files(chance) | _ablation_files(chance)


def lines(records: Iterable[Mapping[str, Any]]) -> str:
    """JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records)


def parsed(text: str) -> list[Record]:
    """The objects of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def _domino_files(
    chance: random.Random, contents: dict[str, str], model: Model, temperature: str
) -> dict[str, list[Record]]:
    """Writes both arms; gives the turns that their table is of, by dataset."""
    chosen = {}
    for dataset, (prompts, turns) in PROMPTS.items():
        arms = {}
        for arm in ("graph", "eager"):
            records, rows = [], []
            for prompt in range(prompts):
                lengths = [[chance.randint(1, 17) for _ in range(chance.randint(3, 9))] for _ in range(turns)]
                tokens = [sum(length) - chance.randint(0, 1) for length in lengths]
                seconds = [chance.uniform(0.1, 0.9) for _ in range(turns)]
                block = {"index": 1, "turns": ["x"] * turns, "new_tokens": tokens, "decode_times": seconds}
                records.append({"question_id": prompt, "choices": [_empty(), block | {"acceptance_lengths": lengths}]})
                rows += [
                    {"prompt": prompt, "turn": turn, "tps": tokens[turn] / seconds[turn], "lengths": lengths[turn]}
                    for turn in range(turns)
                ]
            contents[f"results/raw/domino_official/{model.name.lower()}/T{temperature}/{arm}_{dataset}.jsonl"] = lines(
                records
            )
            arms[arm] = [row for row in rows if row["prompt"] or not model.domino_drops_first]
        graph, eager = (statistics.fmean(float(str(row["tps"])) for row in arms[arm]) for arm in ("graph", "eager"))
        chosen[dataset] = arms["graph" if graph >= eager else "eager"]
    return chosen


def _empty() -> Record:
    return {"index": 0, "turns": [], "new_tokens": [], "decode_times": [], "acceptance_lengths": []}


def _program_files(
    chance: random.Random,
    contents: dict[str, str],
    model: Model,
    temperature: str,
    program: str,
    methods: tuple[str, ...],
) -> dict[str, dict[str, list[Record]]]:
    """Writes one program's files; gives its rows by dataset and method, in order."""
    found: dict[str, dict[str, list[Record]]] = {}
    is_bare = program != "dominotree" and model.raw.endswith("8b")
    for dataset, (prompts, turns) in PROMPTS.items():
        records = []
        sums: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for prompt in range(prompts):
            for turn in range(turns):
                for method in methods:
                    rounds = chance.randint(3, 9)
                    tokens = rounds if method in {"ar", "baseline"} else rounds * chance.randint(2, 9)
                    tps = chance.uniform(20, 90)
                    one: dict[str, object] = {"method": method, "sample_idx": prompt, "tps": tps}
                    one["mean_accept"] = tokens / rounds
                    if is_bare:
                        one["sample_idx"] = prompt * turns + turn
                    else:
                        one |= {"turn_index": turn, "num_output": tokens, "decode_time": tokens / tps}
                    if program != "dominotree" and not is_bare:
                        one["decode_rounds"] = rounds
                    if program == "dominotree":
                        one["ms_verify"] = chance.uniform(20, 30)
                    sums[method].append((tokens, rounds))
                    records.append(one | (_head(chance, method) if program == "dominotree" else {}))
        _make_caddtree_same(records, temperature)
        contents[f"{model.raw}/{program}/{dataset}_T{temperature}.jsonl"] = lines(records)
        if is_bare:
            _session_files(contents, model, temperature, dataset, sums)
        elif program == "dominotree" and model.summaries and temperature == "0.0":
            contents[f"{BASELINE_SESSION}/{dataset}_T0.0.jsonl"] = lines(_slower(records))
        found[dataset] = {method: [record for record in records if record["method"] == method] for method in methods}
    return found


def _session_files(
    contents: dict[str, str],
    model: Model,
    temperature: str,
    dataset: str,
    sums: Mapping[str, list[tuple[int, int]]],
) -> None:
    """Sums of a session; above temperature 0 it has no baseline, and its rounds take 0.85 of the time."""
    is_later = temperature != "0.0"
    rows = []
    for method, turns in sums.items():
        tokens, rounds = (sum(column) for column in zip(*turns, strict=True))
        row: Record = {"method": method, "samples": len(turns), "output_tokens": tokens}
        # A round of a method takes equally long in one session.
        row["decode_seconds"] = rounds * SECONDS[method] * (0.85 if is_later else 1.0)
        row |= {"decode_rounds_mean": rounds / len(turns), "accept_len_round_weighted": tokens / rounds}
        row |= {"budget_mean_unweighted": 15.99} if method == "caddtree" else {}
        rows += [] if is_later and method == "baseline" else [row]
    folder = model.summaries[temperature]
    summary = {"args": {"max_tree_budget": 16}, "rows": rows}
    contents[f"{folder}/{dataset}_T{temperature}.pt.summary.json"] = json.dumps(summary)
    contents[f"{folder}/MANIFEST.json"] = json.dumps({"skip_baseline": True} if is_later else {"tree_budget": 16})


SECONDS = {"baseline": 0.06, "dflash": 0.09, "ddtree_tb16": 0.1, "caddtree": 0.1}
"""Of a round, in the first session of Qwen3-8B."""


def _slower(records: Iterable[Record]) -> list[Record]:
    """The same trees in the session of the baseline, in which verification takes 1.25 times as long."""
    return [
        record | {"method": "cond@16", "ms_verify": 1.25 * float(str(record["ms_verify"]))}
        for record in records
        if record["method"] == "dominotree@16"
    ]


def _ablation_files(chance: random.Random) -> dict[str, str]:
    """The chain with greedy candidates, and with sampled ones, which are accepted less."""
    found = {}
    for temperature in ("0.5", "1.0"):
        for state, most in (("off", 9.0), ("on", 5.0)):
            records = [
                {"method": method, "sample_idx": prompt, "turn_index": 0, "mean_accept": chance.uniform(2, most)}
                for prompt in range(6)
                for method in ("chain", "dominotree@16")
            ]
            found[f"{ABLATION}/draftsample_gsm8k_T{temperature}_{state}.jsonl"] = lines(records)
    return found


def _make_caddtree_same(records: list[Record], temperature: str) -> None:
    """At temperature 0 CaDDTree has DDTree's lengths in all turns but the first."""
    if temperature == "0.0":
        trees = [record for record in records if record["method"] == "ddtree_tb16"]
        for tree, cost_aware in list(
            zip(trees, (record for record in records if record["method"] == "caddtree"), strict=True)
        )[1:]:
            cost_aware |= {key: tree[key] for key in ("mean_accept", "num_output", "decode_rounds") if key in tree}


def _head(chance: random.Random, method: str) -> Record:
    """A text of 5 ids that sometimes diverges at the third, sometimes has a token after its end."""
    ids = [1, 2, 3 if method == "ar" or chance.random() < 0.6 else 4, 5, END_OF_TEXT]
    ids += [198] if method != "ar" and chance.random() < 0.5 else []
    return {"out_head": ids, "out_sig": str(hash(tuple(ids))), "num_output": len(ids)}


def _ladder_files(chance: random.Random) -> dict[str, str]:
    methods = ("ar", "marg@16", "condstatic@16", "dominotree@16")
    found = {}
    means: dict[str, list[float]] = defaultdict(list)
    for dataset, (prompts, turns) in PROMPTS.items():
        records = [
            {"method": method, "sample_idx": prompt, "turn_index": turn, "mean_accept": chance.uniform(2, 9)}
            | _head(chance, method)
            for prompt in range(prompts)
            for turn in range(turns)
            for method in methods
        ]
        for folder in ("matched_builder", "best_builder"):
            found[f"results/conditioning_ladder/{folder}/{dataset}_T0.0.jsonl"] = lines(records)
        for method in methods:
            own = [float(str(record["mean_accept"])) for record in records if record["method"] == method]
            means[method].append(statistics.fmean(own))
    shown = " → ".join(f"{statistics.fmean(means[method]):.2f}" for method in methods[1:])
    found["results/conditioning_ladder/README.md"] = f"It is the same across both configurations — {shown}."
    return found


def _cells(model: Model, temperature: str, domino: Mapping[str, list[Record]], printed: list[str]) -> list[Record]:
    rows = []
    for dataset, turns in domino.items():
        tau = statistics.fmean(statistics.fmean(turn["lengths"]) for turn in turns)
        rows.append(
            {"temp": temperature, "dataset": dataset, "model": model.name, "method": "Domino", "tau": repr(tau)}
        )
    overall = statistics.fmean(float(row["tau"]) for row in rows)
    printed.append(f"| {model.name} | Domino | 1.00 / 1.00 | 1.00 / {overall:.2f} |")
    return rows


def _printed_rivals(model: Model, others: Mapping[str, Mapping[str, list[Record]]]) -> list[str]:
    found = []
    for method, label in (("ddtree_tb16", "DDTree@16"), ("caddtree", "CaDDTree")):
        tau = statistics.fmean(statistics.fmean(one["mean_accept"] for one in own[method]) for own in others.values())
        speedup = statistics.fmean(
            statistics.fmean(one["tps"] for one in own[method])
            / statistics.fmean(one["tps"] for one in own["baseline"])
            for own in others.values()
        )
        found.append(f"| {model.name} | {label} | 1.00 / 1.00 | {speedup:.2f} / {tau:.2f} |")
    return found


def _pairs(
    temperature: str,
    model: Model,
    domino: Mapping[str, list[Record]],
    tree: Mapping[str, Mapping[str, list[Record]]],
    others: Mapping[str, Mapping[str, list[Record]]],
) -> list[Record]:
    rows = []
    for rollup, datasets in ROLLUPS.items():
        for rival, label in RIVALS.items():
            pairs = [pair for name in datasets if name in tree for pair in
                     pairs_of(model, rival, domino[name], tree[name], others[name])]  # fmt: skip
            if pairs:
                ratio = statistics.fmean(value for value, _ in pairs) / statistics.fmean(other for _, other in pairs)
                delta = 100 * (ratio - 1)
                rows.append(
                    {
                        "temp": temperature,
                        "dataset_or_rollup": rollup,
                        "comparison": f"DominoTree (16) vs {label}",
                        "n": len(pairs),
                        "delta_pct": repr(delta),
                        "ci_low": repr(delta - 10),
                        "ci_high": repr(delta + 10),
                    }
                )
    return rows


def pairs_of(
    model: Model,
    rival: str,
    domino: list[Record],
    tree: Mapping[str, list[Record]],
    others: Mapping[str, list[Record]],
) -> list[tuple[float, float]]:
    """Speeds of DominoTree and of a rival by their rules, turn by turn."""
    first = 1 if model.tree_drops_first else 0
    if rival == "domino":
        theirs = {(one["prompt"], one["turn"]): one["tps"] for one in domino}
        own = {(one["sample_idx"], one["turn_index"]): one["tps"] for one in tree["dominotree@16"][first:]}
        return [(own[key], theirs[key]) for key in own if key in theirs]
    return [
        (one["tps"] / plain["tps"], other["tps"] / base["tps"])
        for one, plain, other, base in zip(
            tree["dominotree@16"], tree["ar"], others[rival], others["baseline"], strict=True
        )
    ][first:]


def _csv(rows: list[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
