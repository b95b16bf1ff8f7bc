"""What quantising a target costs in acceptance: docs/measurements/quantised_targets.md, measured and written.

The built-in target is quantised by bitsandbytes in two ways, recorded with its packaged drafter on the same prompts,
and replayed under the same policies. Figures are kept in quantised_targets.json, out of which the page's table and
verdicts are written.

    python docs/make_quantised.py measure --prompts eval.jsonl --out runs/quantised    # about half an hour on two cores
    python docs/make_quantised.py page
"""

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from make_claims import Parts, written
from make_field import table
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import simlab
from simlab.analysis.statistics.intervals import ratio_interval, speedup_interval
from simlab.arrays import Doubles
from simlab.real_runner.targets.builtin import builtin_target_dir
from simlab.traces.reader import Trace

PAGE = Path("docs/measurements/quantised_targets.md")
DATA = Path("docs/measurements/quantised_targets.json")
WAYS: Mapping[str, Mapping[str, object]] = {
    "int8": {"load_in_8bit": True},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
"""What bitsandbytes is asked for."""

OWN = "as packaged"
POLICIES = ("chain", "ddtree:budget=16", "ddtree:budget=64")
PROMPT = ["dataset", "prompt_id"]
NEW_TOKENS = 64


def quantise(folder: Path, settings: Mapping[str, object]) -> Path:
    """A folder with the built-in target, its weights quantised."""
    if not (folder / "config.json").is_file():
        dense, beside = builtin_target_dir(), folder.with_name(f"{folder.name}.part")
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(dense, beside, ignore=shutil.ignore_patterns("*.safetensors", "complete"))
        asked = BitsAndBytesConfig(**settings)
        model = AutoModelForCausalLM.from_pretrained(dense, quantization_config=asked, dtype=torch.float32)
        model.save_pretrained(beside)
        beside.rename(folder)
    return folder


def recorded(target: str, prompts: Path, folder: Path) -> Trace:
    """A trace of the texts that a target writes itself; one that was begun goes on, a whole one is read."""
    if (folder / "manifest.json").is_file():
        return simlab.open_trace(folder)
    return simlab.record(
        target, prompts=prompts, out=folder, max_new_tokens=NEW_TOKENS, batch_size=32, resume=folder.exists()
    )


def sums_of(trace: Trace) -> dict[str, pl.DataFrame]:
    """Rounds and committed tokens of each prompt, under each policy."""
    rows = simlab.replay(trace, POLICIES).rows
    return {
        str(name): part.group_by(PROMPT).agg(pl.col("rounds", "committed").sum()).sort(PROMPT)
        for (name,), part in rows.group_by("policy", maintain_order=True)
        if name in POLICIES
    }


def numbers(sums: pl.DataFrame) -> tuple[Doubles, Doubles]:
    """Committed tokens and rounds, float64 ``[P]`` each."""
    committed, rounds = (sums[name].to_numpy().astype(np.float64) for name in ("committed", "rounds"))
    return committed, rounds


def measure(prompts: Path, out: Path) -> None:
    """Quantise, record and replay; write the figures."""
    out.mkdir(parents=True, exist_ok=True)
    targets = {OWN: "smollm2-135m"} | {way: str(quantise(out / way, asked)) for way, asked in WAYS.items()}
    traces = {way: recorded(target, prompts, out / f"trace-{way.replace(' ', '-')}") for way, target in targets.items()}
    sums = {way: sums_of(trace) for way, trace in traces.items()}
    rows = [row for way in targets for row in rows_of(way, sums[way], sums[OWN])]
    own = traces[OWN].manifest
    values = {
        "prompts": datasets(prompts),
        "max_new_tokens": own.max_new_tokens,
        "temperature": own.sampling.temperature,
        "versions": dict(own.versions),
        "stored": {way: trace.manifest.target.quantised or _PACKAGED for way, trace in traces.items()},
        "text_ids": {way: trace.text_id for way, trace in traces.items()},
        "same_texts": {way: same_texts(traces[OWN], traces[way]) for way in WAYS},
        "rows": rows,
    }
    DATA.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


_PACKAGED = "Q4_1 of a GGUF, dequantised"


def datasets(prompts: Path) -> dict[str, int]:
    """The data sets of a prompt file, with their numbers of prompts."""
    return dict(
        Counter(json.loads(line)["dataset"] for line in prompts.read_text(encoding="utf-8").split("\n") if line)
    )


def same_texts(trace: Trace, other: Trace) -> float:
    """The share of prompts to which two targets wrote the same tokens, to the last."""
    texts = zip(trace.sequences(), other.sequences(), strict=True)
    return sum(np.array_equal(one.text, two.text) for one, two in texts) / len(trace.texts)


def rows_of(way: str, sums: Mapping[str, pl.DataFrame], own: Mapping[str, pl.DataFrame]) -> Iterator[dict[str, Any]]:
    """The figures of a target: its acceptance length, and the paired ratio to that of the target as packaged."""
    for policy, of_policy in sums.items():
        if not of_policy[PROMPT].equals(own[policy][PROMPT]):
            raise ValueError(f"{way} was recorded with other prompts")
        (tokens, rounds), (base_tokens, base_rounds) = numbers(of_policy), numbers(own[policy])
        length, base = tokens.sum() / rounds.sum(), base_tokens.sum() / base_rounds.sum()
        of_length = ratio_interval(tokens, rounds)
        # Tokens a round over tokens a round: the speedup's formula, with rounds for seconds.
        change = speedup_interval(tokens, rounds, base_tokens, base_rounds)
        yield {
            "target": way,
            "policy": policy,
            "tokens": int(tokens.sum()),
            "rounds": int(rounds.sum()),
            "acceptance_length": length,
            "low": of_length.low,
            "high": of_length.high,
            "change": length / base - 1,
            "change_low": None if way == OWN else change.low - 1,
            "change_high": None if way == OWN else change.high - 1,
        }


def percent(value: float) -> str:
    """A change as the page writes it, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "\u2212")


def lengths(values: Mapping[str, Any]) -> str:
    """The page's table: an acceptance length with its interval, and the paired change."""
    rows = []
    for row in values["rows"]:
        length = f"{row['acceptance_length']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        ends = row["change_low"], row["change_high"]
        change = "" if row["target"] == OWN else f"{percent(row['change'])} [{', '.join(map(percent, ends))}]"
        rows.append([row["target"], f"`{row['policy']}`", length, change])
    return table(["target", "policy", "acceptance length", "change, %"], rows)


def verdicts(values: Mapping[str, Any]) -> str:
    """A sentence for each way: in which direction the interval of the change lies, or that it holds nothing."""
    lines = []
    for way in WAYS:
        rows = [row for row in values["rows"] if row["target"] == way]
        named: dict[str, list[str]] = {}
        for row in rows:
            named.setdefault(_sign(row), []).append(f"`{row['policy']}`")
        said = "; ".join(f"under {', '.join(policies)} it {sign}" for sign, policies in named.items())
        same = f"{100 * values['same_texts'][way]:.0f} % of its texts are those of the target as packaged"
        lines.append(f"* **{way}** ({values['stored'][way]}): {said}. {same}.")
    return "\n".join(lines)


def _sign(row: Mapping[str, Any]) -> str:
    # Two ways and three policies are looked at: an interval of 95 % that just misses nothing is weak evidence.
    if row["change_low"] > 0:
        return "accepts more"
    return "accepts less" if row["change_high"] < 0 else "accepts as many tokens, as far as these prompts tell"


def parts(values: Mapping[str, Any]) -> Parts:
    """What the page asks for, out of what was measured."""
    return {"lengths": lambda: lengths(values), "verdicts": lambda: verdicts(values)}


def main(typed: Sequence[str] | None = None) -> None:
    """Measure, or write the page out of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/quantised"))
    asked = parser.parse_args(typed)
    if asked.what == "measure":
        if asked.prompts is None:
            parser.error("measure takes --prompts FILE")
        measure(asked.prompts, asked.out)
    values = json.loads(DATA.read_text(encoding="utf-8"))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), parts(values)), encoding="utf-8")


if __name__ == "__main__":
    main()
