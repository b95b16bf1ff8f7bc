"""Example cost files of GPUs: what others measured with their models, which any trace may borrow.

Each is made of published timings that come with simlab, and lies beside them as a cost file, so that ``--cost NAME``
reads it. ``docs/make_cost_examples.py`` writes the files; a test makes them again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simlab.cost import PLAIN
from simlab.traces.artefacts.cost import EXAMPLES, UNKNOWN, CostFile, write_cost_file
from simlab.traces.artefacts.cost_import import ROOT_INCLUDED, ImportedFor, imported_cost_file, read_timings
from simlab.traces.format.manifest_entries import ModelInfo


@dataclass(frozen=True, slots=True)
class CostExample:
    """What an example cost file is made of.

    Attributes:
        name: under which ``--cost`` finds it.
        timings: the name of the published timings.
        target: the model whose passes were timed.
        drafter: the drafter whose pass was timed, or that none was.
        machine: the device, the engine and how it starts its operations.
        constants: seconds of stages that are no pass of the target, as published; others cost nothing.
    """

    name: str
    timings: str
    target: str
    drafter: str
    machine: str
    constants: Mapping[str, float]


COST_EXAMPLES = (
    CostExample(
        "h100-vllm-graphs",
        "adixg-h100-qwen3-1.7b",
        "Qwen/Qwen3-1.7B",
        "none timed",
        "NVIDIA H100 80GB, vLLM with CUDA graphs",
        {},
    ),
    CostExample(
        "a800-eager",
        "caddtree-a800-qwen3-4b",
        "Qwen/Qwen3-4B",
        "z-lab/Qwen3-4B-DFlash-b16",
        "NVIDIA A800, Hugging Face eager",
        {"draft": 0.0065},
    ),
    CostExample(
        "rtx5080-domino",
        "domino-rtx5080-qwen3-4b",
        "Qwen/Qwen3-4B",
        "Qwen3-4B-Domino-b16",
        "NVIDIA RTX 5080, Domino-Tree's runner",
        {"draft": 0.003253, "select": 0.001770, "commit": 0.000719, PLAIN: 0.013179},
    ),
)
"""In the order in which pages list them."""


def made_example(one: CostExample) -> CostFile:
    """The cost file of an example, made of its timings."""
    target, drafter = (ModelInfo(name, "", UNKNOWN) for name in (one.target, one.drafter))
    about = ImportedFor(target, drafter, 1, 0.0, 0, 1.0, one.machine, "bfloat16")
    return imported_cost_file(read_timings(one.timings), ROOT_INCLUDED, about, one.constants)


def write_examples(folder: Path = EXAMPLES) -> None:
    """Write all examples as cost files, each under its name."""
    for one in COST_EXAMPLES:
        write_cost_file(folder / f"{one.name}.json", made_example(one))
