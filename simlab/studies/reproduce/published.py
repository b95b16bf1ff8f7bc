"""Figures that others published, where they stand, and what would have to be equal to call one reproduced."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simlab.errors import UsageError

GSM8K_ENDING = r"\nPlease reason step by step, and put your final answer within \\boxed{}."
"""As quoted for GSM8K in z-lab/dflash #7, escaped as it stands in a JSON string."""


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One number of others.

    Attributes:
        policy: which of the two it is of, ``chain`` or ``ddtree``; or ``released`` for rounds that they released.
        measure: ``acceptance_length``, ``acceptance_length_macro`` or ``speedup``.
        value: as published.
        note: what is known of how it was made.
    """

    policy: str
    measure: str
    value: float
    note: str


@dataclass(frozen=True, slots=True)
class PublishedStudy:
    """A study, or a part of one.

    Attributes:
        title: in a line.
        source: where the figures stand.
        figures: what they say.
        setup: what a trace must be of, by what is compared; None: they do not say. Empty: no trace is needed.
        not_known: what must be equal too and no trace can show.
        on_purpose: where we do not do as they do, theirs and ours.
        missing: what has to be there before it can be run; empty: it runs as it is.
        commands: what to type once it is there.
        uses: the options that it reads, by their names in `ReproduceOptions`.
        release: the list of released files that it is worked out from; empty: none.
    """

    name: str
    title: str
    source: str
    figures: tuple[PublishedFigure, ...]
    setup: Mapping[str, str | None] = field(default_factory=dict)
    not_known: Mapping[str, str] = field(default_factory=dict)
    on_purpose: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: str = ""
    commands: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    release: str = ""

    @property
    def state(self) -> str:
        """Whether it can be reproduced with what comes with simlab, or with files that are fetched first."""
        if self.missing:
            return "not yet run by us"
        return "fetches its files" if self.release else "runs here"

    @property
    def heading(self) -> str:
        """What it is, and where their figures stand."""
        return f"{self.title}\ntheirs   {self.source}"

    def refusal(self, *commands: str) -> UsageError:
        """A sentence of what is missing, with what to type once it is there."""
        refusal = UsageError(f"`{self.name}` is {self.state}: {self.missing}; once they are there:")
        for command in commands:
            refusal.add_note(command)
        return refusal


_MODELS = "--target Qwen/Qwen3-8B --draft z-lab/Qwen3-8B-DFlash-b16"
_RUNNING = "--dtype bfloat16 --device cuda"
_TEXT = f"--chat-template-kwargs '{{\"enable_thinking\": false}}' --max-new-tokens 2048 {_RUNNING}"
_GSM8K = "runs/ddtree-gsm8k"
_COUNTS, _COST = "1,8,15,16,32,64,128,256,512,1024", "runs/ddtree-cost.json"
_LINE = f'{{"id": "0", "dataset": "gsm8k", "prompt": "QUESTION{GSM8K_ENDING}"}}'

_QWEN3_8B: Mapping[str, str | None] = {
    "target": "Qwen3-8B",
    "drafter": "Qwen3-8B-DFlash-b16",
    "block": "16",
    "dtype": None,
    "temperature": "0",
    "thinking": "off",
    "text": "generated",
    "new tokens, at most": None,
    "dataset": "gsm8k",
    "number of prompts": None,
}

ZLAB_166 = PublishedStudy(
    name="zlab-166",
    title="DFlash, Qwen3-8B on GSM8K: the mean acceptance length that is printed, and that of its own histogram",
    source="github.com/z-lab/dflash, issue #166",
    figures=(
        PublishedFigure("chain", "acceptance_length_macro", 6.39, "as printed; their code averages per response"),
        PublishedFigure("chain", "acceptance_length", 6.28, "mean of the 17-bin histogram of the same run"),
    ),
    setup=_QWEN3_8B,
    not_known={
        "prompts": "which questions, and the wording around them",
        "weights": "revisions of target and drafter",
        "libraries": "versions, attention kernel",
        "end of text": "whether the last round's tokens past the end were counted",
    },
    missing=(
        "it needs a trace of Qwen3-8B with the drafter z-lab/Qwen3-8B-DFlash-b16 on GSM8K, temperature 0, thinking "
        "off; recording it takes a GPU and both models"
    ),
    commands=(
        f"# gsm8k.jsonl, a line for each question of GSM8K's test split: {_LINE}",
        f"simlab record {_MODELS} --prompts gsm8k.jsonl {_TEXT} --out runs/zlab-166",
        "simlab study reproduce zlab-166 --trace runs/zlab-166",
    ),
    uses=("traces", "draft_set", "limit", "progress"),
)

DDTREE_GSM8K = PublishedStudy(
    name="ddtree-gsm8k",
    title="DDTree, Qwen3-8B on GSM8K: from the chain to the best tree of a fixed budget",
    source="Ringel and Romano 2026, arXiv 2604.12989; quoted from their page and tables",
    figures=(
        PublishedFigure("chain", "acceptance_length_macro", 6.57, "DFlash; mean of per-response means"),
        PublishedFigure("ddtree", "acceptance_length_macro", 9.54, "the fastest budget on the evaluation prompts"),
        PublishedFigure("chain", "speedup", 4.78, "8 x H200 side by side, one text each, Hugging Face"),
        PublishedFigure("ddtree", "speedup", 6.75, "the fastest budget on the evaluation prompts"),
    ),
    setup={**_QWEN3_8B, "new tokens, at most": "2048", "number of prompts": "128"},
    not_known={
        "prompts": "which 128 questions, and the wording around them",
        "weights": "revisions of target and drafter",
        "libraries": "versions, attention kernel",
    },
    on_purpose={
        "end of text": ("the last round counts whole, past the end too", "tokens of the text only"),
        "choice of budget": ("on the evaluation prompts", "on dev prompts"),
    },
    missing=(
        "it needs two traces of Qwen3-8B with the drafter z-lab/Qwen3-8B-DFlash-b16 on GSM8K, temperature 0, thinking "
        "off, one of them of dev prompts to choose the budget on, and a measured latency profile; they take a GPU and "
        "both models"
    ),
    commands=(
        f"# gsm8k.jsonl, a line for each of 128 questions of GSM8K's test split: {_LINE}",
        "# gsm8k-dev.jsonl, the same of questions of its training split",
        f"simlab record {_MODELS} --prompts gsm8k.jsonl {_TEXT} --exact-budget 1024 --out runs/ddtree-gsm8k",
        f"simlab record {_MODELS} --prompts gsm8k-dev.jsonl {_TEXT} --exact-budget 1024 --out runs/ddtree-gsm8k-dev",
        f"simlab profile {_MODELS} {_RUNNING} --node-counts {_COUNTS} --out {_COST}",
        f"simlab study reproduce ddtree-gsm8k --trace {_GSM8K} --dev-trace {_GSM8K}-dev --cost {_COST}",
    ),
    uses=("traces", "dev_trace", "draft_set", "cost", "limit", "progress"),
)

DDTREEPP_ROUNDS = PublishedStudy(
    name="ddtreepp-rounds",
    title="DDTree++, Qwen3-4B on GSM8K: 4,392 rounds that were released, through the statistics of this project",
    source="github.com/hxri/ddtreeplus, commit cfdb5f8 (MIT, copyright 2026 Liran Ringel)",
    figures=(
        PublishedFigure("released", "acceptance_length", 8.68, "which mean it is, is not said"),
        PublishedFigure(
            "baseline", "acceptance_length", 9.08, "their fixed budget of 128; its rounds are not released"
        ),
    ),
)

AVERAGING = PublishedStudy(
    name="averaging",
    title="Pooled over rounds, or the mean of per-response means: how far apart, and does a ranking flip",
    source="z-lab/dflash #166 and #119, vllm-project/vllm #42508, hxri/ddtreeplus",
    figures=(
        PublishedFigure(
            "z-lab/dflash #166", "acceptance_length_macro", 6.39, "printed; its own histogram averages 6.28"
        ),
        PublishedFigure(
            "z-lab/dflash #119", "acceptance_length_macro", 6.36, "printed; 39,253 tokens / 6,428 rounds = 6.11"
        ),
    ),
    uses=("traces", "draft_set", "policies", "limit", "progress"),
)

POOLED_OF_PRINTED = {"z-lab/dflash #166": 6.28, "z-lab/dflash #119": 39_253 / 6_428}
"""Pooled means that stand beside the printed ones of `AVERAGING`."""


def _of_released(name: str, release: str, repository: str, title: str, *uses: str) -> PublishedStudy:
    """A study of files that others released; their figures are read from these."""
    return PublishedStudy(
        name, title, f"github.com/{repository}", (), uses=("data", "progress", *uses), release=release
    )


_DOMINO = ("domino-tree", "slin-zhq/Domino-Tree")

DATA_STUDIES = (
    _of_released("domino-rounds", *_DOMINO, "Domino, Qwen3-4B and 8B: half a million released rounds, and the table"),
    _of_released("domino-caddtree", *_DOMINO, "CaDDTree beside DDTree of 16: do costs change what is drafted"),
    _of_released(
        "domino-gsm8k", *_DOMINO, "Qwen3-8B with DFlash on GSM8K, by another group: which published figures are near"
    ),
    _of_released("domino-lossless", *_DOMINO, "DominoTree's texts beside autoregressive decoding's"),
    _of_released(
        "specdecode-bench",
        "specdecode-bench",
        "SpecDecode-Bench/simulator",
        "EAGLE and n-grams, Llama 3.1 8B: chains of a fixed length, the oracle, and adaptive ones",
    ),
    _of_released(
        "adixg-cost",
        "adixg-cost",
        "adixg/vllm-specdecode-cost-model",
        "vLLM on an H100: what a pass costs by context, and what a wrong price costs",
        "cost",
        "limit",
    ),
)
"""Studies that are worked out from released files."""

PUBLISHED: Mapping[str, PublishedStudy] = {
    study.name: study for study in (DDTREEPP_ROUNDS, AVERAGING, ZLAB_166, DDTREE_GSM8K, *DATA_STUDIES)
}
"""By the names under which they are asked for."""
