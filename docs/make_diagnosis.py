"""Is a known fault named when it is met? docs/measurements/diagnosis.md, measured and written.

Each fault is made on purpose on the packaged pair, recorded, and looked at by `simlab inspect`; so are drafters and
texts without a fault. Rules were chosen on the dev prompts, the evaluation prompts are held out. Traces are kept, so
that a stopped run goes on. It takes an hour on two cores.

    python docs/make_diagnosis.py measure --dev dev.jsonl --held-out eval.jsonl --out runs/diagnosis
    python docs/make_diagnosis.py page
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_claims import Parts, written
from make_field import table
from safetensors.torch import load_file, save_file
from torch import Tensor

import simlab
from simlab.analysis.crosscheck.diagnosis import ChainRounds, findings_of_rounds, joined, rounds_of_rows
from simlab.real_runner.checkpoints.contents import packaged_checkpoints
from simlab.real_runner.targets.builtin import builtin_target_dir
from simlab.real_runner.targets.model import features_of
from simlab.traces.reader import Trace

PAGE, DATA = Path("docs/measurements/diagnosis.md"), Path("docs/measurements/diagnosis.json")
TARGET, DRAFT = "smollm2-135m", "dflash-smollm2-135m"
PARTS = ("dev", "held out")
NEW_TOKENS, WINDOW = 64, 100

Config = dict[str, Any]
Tensors = dict[str, Tensor]


def taps(offset: int) -> Callable[[Config], None]:
    """A change of the configuration that moves all layers that are read."""

    def change(config: Config) -> None:
        nested = config["dflash_config"]
        nested["target_layer_ids"] = [min(29, max(-1, layer + offset)) for layer in nested["target_layer_ids"]]

    return change


def mask(token: int) -> Callable[[Config], None]:
    """A change of the configuration that puts another token into the masked slots."""

    def change(config: Config) -> None:
        config["dflash_config"]["mask_token_id"] = token

    return change


def embedding() -> Tensor:
    """The target's embedding, which is its head, bfloat16 ``[V, H]``."""
    (path,) = builtin_target_dir().glob("*.safetensors")
    return load_file(path)["model.embed_tokens.weight"].to(torch.bfloat16)


def random_head(tensors: Tensors) -> None:
    """Give the drafter a head that was never loaded."""
    own = embedding().float()
    drawn = torch.randn(own.shape, generator=torch.Generator().manual_seed(0))
    tensors["lm_head.weight"] = (drawn * own.std()).to(torch.bfloat16)


def rolled_head(tensors: Tensors) -> None:
    """Give the drafter the target's head with every row one further down."""
    tensors["lm_head.weight"] = embedding().roll(1, 0).contiguous()


DRAFTERS: Mapping[str, tuple[str, Callable[[Config], None] | None, Callable[[Tensors], None] | None]] = {
    "states one layer further up": ("shifted taps", taps(1), None),
    "states one layer further down": ("shifted taps", taps(-1), None),
    "states two layers further up": ("shifted taps", taps(2), None),
    "states two layers further down": ("shifted taps", taps(-2), None),
    "a head of random numbers": ("a missing head", None, random_head),
    "a head one row further down": ("a shifted vocabulary", None, rolled_head),
    "mask token 0": ("a wrong mask token", mask(0), None),
    "mask token 300": ("a wrong mask token", mask(300), None),
}
"""What is made of the packaged drafter: the fault's name, and what is changed."""

TEMPLATES = {
    "no template": (
        "no chat template, or another one",
        "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
    ),
    "[INST] for a template": (
        "no chat template, or another one",
        "{% for message in messages %}[INST] {{ message['content'] }} [/INST]{% endfor %}",
    ),
    "<think> opened behind the prompt": (
        "thinking is on",
        (
            "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
            "{% endfor %}<|im_start|>assistant\n<think>\n"
        ),
    ),
}
LOOPS = (
    "Write the word yes one hundred times.",
    "Sing la la la la la la la la la la la la forever.",
    "Say hello hello hello hello hello hello hello without end.",
    "Write A B A B A B A B A B A B A B and go on like this.",
    "Print the line 0 1 0 1 0 1 0 1 0 1 0 1 fifty times.",
    "Count: one two three one two three one two three one two three. Go on.",
    "Repeat after me, again and again: ping pong ping pong ping pong ping pong.",
    "List the number 7 one hundred times, separated by commas: 7, 7, 7, 7, 7, 7, 7, 7,",
)
HEALTHY = {
    "the packaged drafter": {},
    "a causal drafter": {"draft": "jetspec-smollm2-135m"},
    "blocks of 4": {"block": 4},
}
"""Without a fault: what is recorded in place of the packaged drafter."""


def made_drafter(
    folder: Path, config: Callable[[Config], None] | None, tensors: Callable[[Tensors], None] | None
) -> Path:
    """The packaged drafter with a change of its configuration or its tensors."""
    if not (folder / "model.safetensors").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        packaged = packaged_checkpoints()[DRAFT]
        fields = json.loads((packaged / "config.json").read_text())
        if config is not None:
            config(fields)
        (folder / "config.json").write_text(json.dumps(fields))
        stored = load_file(packaged / "model.safetensors")
        if tensors is not None:
            tensors(stored)
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def made_target(folder: Path, template: str) -> Path:
    """The built-in target with another chat template."""
    if not folder.exists():
        shutil.copytree(builtin_target_dir(), folder, ignore=shutil.ignore_patterns("complete", "chat_template.jinja"))
        path = folder / "tokenizer_config.json"
        fields = json.loads(path.read_text())
        fields.pop("chat_template", None)
        path.write_text(json.dumps(fields))
        (folder / "chat_template.jinja").write_text(template)
    return folder


@contextmanager
def without_states_behind(window: int) -> Iterator[None]:
    """A drafter's cache that ends: of tokens behind it no states of the target arrive."""
    whole = features_of

    def cut(taken: dict[int, Tensor], layer_ids: Sequence[int]) -> Tensor:
        features = whole(taken, layer_ids).clone()
        features[..., window:, :] = 0
        return features

    users = [module for module in sys.modules.values() if getattr(module, "features_of", None) is whole]
    for module in users:
        module.features_of = cut  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in users:
            module.features_of = whole  # type: ignore[attr-defined]


def cases(prompts: Path, work: Path, out: Path) -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    """What is recorded: its name, the fault that it has (empty: none), and how."""
    base, common = out / "the-packaged-drafter", {"max_new_tokens": NEW_TOKENS, "batch_size": 32}
    yield "the packaged drafter", "", lambda to: simlab.record(TARGET, DRAFT, prompts=prompts, out=to, **common)
    for name, settings in list(HEALTHY.items())[1:]:
        yield (
            name,
            "",
            lambda to, settings=settings: simlab.record(
                TARGET, **({"draft": DRAFT} | settings), text_from=base, out=to
            ),
        )
    yield (
        "sampled at temperature 1",
        "",
        lambda to: simlab.record(TARGET, DRAFT, prompts=prompts, out=to, temperature=1.0, **common),
    )
    for name, (fault, config, tensors) in DRAFTERS.items():
        drafter = made_drafter(work / "drafters" / name.replace(" ", "-"), config, tensors)
        yield name, fault, lambda to, drafter=drafter: simlab.record(TARGET, str(drafter), text_from=base, out=to)

    def record_window(to: Path) -> None:
        with without_states_behind(WINDOW):
            simlab.record(TARGET, DRAFT, text_from=base, out=to)

    yield f"no states behind token {WINDOW}", "a window that ends", record_window
    for name, (fault, template) in TEMPLATES.items():
        target = made_target(work / "targets" / re.sub(r"\W+", "-", name), template)
        yield (
            name,
            fault,
            lambda to, target=target: simlab.record(str(target), DRAFT, prompts=prompts, out=to, **common),
        )
    loops = work / "loops.jsonl"
    loops.write_text(
        "".join(json.dumps({"id": str(number), "turns": [text]}) + "\n" for number, text in enumerate(LOOPS))
    )
    yield (
        "prompts that ask for loops",
        "repeated text",
        lambda to: simlab.record(TARGET, DRAFT, prompts=loops, out=to, max_new_tokens=128, batch_size=8),
    )


def beside(trace: Trace, base: Trace) -> ChainRounds:
    """The rounds of a drafter at every root, beside those of the packaged one: as an engine's beside a prediction."""
    here, there = (joined(list(rounds_of(one))) for one in (trace, base))
    expected = np.minimum(there.kept, here.reach)
    return ChainRounds(here.prompt, here.context, here.kept, here.reach, expected=expected)


def rounds_of(trace: Trace) -> Iterator[ChainRounds]:
    """How a round would end at each root of each text."""
    for sequence in trace.recorded(trace.draft_name()):
        assert sequence.rows is not None
        yield rounds_of_rows(sequence.index, len(sequence.prompt.token_ids), len(sequence.text), sequence.rows)


def measure(prompts: Mapping[str, Path], out: Path) -> None:
    """Record every case on both parts, and keep what `simlab inspect` says of it."""
    rows: dict[str, dict[str, Any]] = {}
    for part, path in prompts.items():
        folder = out / part.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        for name, fault, record in cases(path, out, folder):
            place = folder / re.sub(r"\W+", "-", name)
            if not (place / "manifest.json").is_file():
                shutil.rmtree(place, ignore_errors=True)
                record(place)
            looks = simlab.inspect(place).to_json()["looks_like"]
            row = rows.setdefault(name, {"case": name, "fault": fault})
            row[part] = [{"fault": look["fault"], "evidence": look["evidence"]} for look in looks]
            trace, base = simlab.open_trace(place), simlab.open_trace(folder / "the-packaged-drafter")
            manifest = trace.manifest
            (kept,) = simlab.inspect(place).to_json()["drafts"].values()
            row[f"first right, {part}"] = kept["true_first_share"][0]
            if trace.text_id == base.text_id:
                row[f"beside, {part}"] = [asdict(look) for look in findings_of_rounds(beside(trace, base))]
    values = {
        "versions": dict(manifest.versions),
        "prompts": {part: sum(1 for _ in path.open()) for part, path in prompts.items()},
        "max_new_tokens": NEW_TOKENS,
        "rows": list(rows.values()),
    }
    DATA.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def confusion(values: Mapping[str, Any]) -> str:
    """What was made, how often the first token is then right, and what it is taken for."""
    keys = [*PARTS, *(f"beside, {part}" for part in PARTS)]
    rows = []
    for row in values["rows"]:
        named = ["" if key not in row else ", ".join(look["fault"] for look in row[key]) or "none" for key in keys]
        rows.append([row["case"], row["fault"] or "none", f"{100 * row['first right, held out']:.0f}", *named])
    head = [
        "what was made",
        "is",
        "first right, %",
        "in a trace: dev",
        "held out",
        "beside a prediction: dev",
        "held out",
    ]
    return table(head, rows)


def counts(values: Mapping[str, Any]) -> str:
    """How many are named rightly, in words."""
    lines = []
    seen = {part: f"In a trace, {part}" for part in PARTS}
    seen |= {f"beside, {part}": f"Beside a prediction, {part}" for part in PARTS}
    for key, where in seen.items():
        rows = [row for row in values["rows"] if key in row]
        faulty, healthy = ([row for row in rows if bool(row["fault"]) == is_faulty] for is_faulty in (True, False))
        named = [[look["fault"] for look in row[key]] for row in faulty]
        right = sum(row["fault"] in faults for row, faults in zip(faulty, named, strict=True))
        wrong = sum(bool(set(faults) - {row["fault"]}) for row, faults in zip(faulty, named, strict=True))
        silent, quiet = sum(not faults for faults in named), sum(not row[key] for row in healthy)
        lines.append(
            f"* **{where}**: of {len(faulty)} faults {right} are named as what they are, {wrong} as something else (as "
            f"well), {silent} not at all; of {len(healthy)} cases without a fault {quiet} are named as none."
        )
    return "\n".join(lines)


def parts(values: Mapping[str, Any]) -> Parts:
    """What the page asks for, out of what was measured."""
    return {"confusion": lambda: confusion(values), "counts": lambda: counts(values)}


def main(typed: Sequence[str] | None = None) -> None:
    """Measure, or write the page out of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"))
    asked = parser.parse_args(typed)
    if asked.what == "measure":
        if asked.dev is None or asked.held_out is None:
            parser.error("measure takes --dev FILE and --held-out FILE")
        measure(dict(zip(PARTS, (asked.dev, asked.held_out), strict=True)), asked.out)
    values = json.loads(DATA.read_text(encoding="utf-8"))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), parts(values)), encoding="utf-8")


if __name__ == "__main__":
    main()
