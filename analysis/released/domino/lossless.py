"""Where texts of tree drafting diverge from those of autoregressive decoding, at temperature 0 in bfloat16.

Released are the first 128 token ids of each text, and a digest of the whole text. A difference is no fault by itself:
in reduced precision a near-tie of the target may fall the other way in a pass of another shape. To tell the two apart
takes the target's logits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import polars as pl

from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.domino.records import BLOCK, DATASETS, record_names
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.released.prompt_ratios import PromptFigure, mean_over_datasets, prompt_ratio, prompt_share
from simlab.analysis.table.text import aligned, within_width
from simlab.errors import SimlabError

END_OF_TEXT = 151_645
"""The token that ends a turn of Qwen3."""

HEAD = 128
"""Token ids that were released of each text, or all of a shorter one."""

AUTOREGRESSIVE, CHAIN, TREE = "ar", "chain", "dominotree@16"

SOURCES: Mapping[str, Mapping[str, str]] = {
    "Qwen3-4B": {
        "results/conditioning_ladder/matched_builder": "ladder, one builder",
        "results/conditioning_ladder/best_builder": "ladder, best builders",
        "results/raw/dominotree": "main table",
    },
    "Qwen3-8B": {"results/raw/8b/dominotree": "main table"},
}
"""Folders with heads and digests, by model; the first is the one that is told by dataset.

Their ladder compares three ways to score a tree's nodes; a builder is the code that makes the tree of the scores.
"""

LABELS: Mapping[str, str] = {
    folder: f"{model}, {name}" for model, folders in SOURCES.items() for folder, name in folders.items()
}

_LADDER = ("marg@16", "condstatic@16", TREE)
_LADDER_README = "results/conditioning_ladder/README.md"
_CURVE = tuple(range(0, HEAD + 1, 4))
_COUNTED = ("head_equal", "digest_equal", "surely_equal", "possibly_equal", "ends", "after_end")

NEEDED = (
    "To tell a near-tie from a fault, these would have to be released: of both texts, all token ids; at each position "
    "of both the target's two largest log-probabilities with their ids, at least at the first position that differs, "
    "computed by one teacher-forced pass in float32; library versions of the runs; and whether ids after the "
    "end-of-sequence token are kept. `simlab confirm` does that pass over every emitted text itself and gives the "
    "verdict exact, ties(n) with the gap of each, or FAILED."
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as far as it was released.

    Attributes:
        head: its first tokens, up to the first `END_OF_TEXT`.
        ends: whether that was found.
        tokens: of the whole text, as they count.
    """

    method: str
    dataset: str
    prompt: int
    turn: int
    head: tuple[int, ...]
    ends: bool
    digest: str
    tokens: int
    mean: float


Pairs = Mapping[tuple[str, str], pl.DataFrame]
"""Texts of a folder and method beside autoregressive decoding's, a row for each turn."""


def domino_lossless(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """How many texts have the first tokens of autoregressive decoding's, how many may be equal, where they diverge.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    folders = {folder: _names(files, folder) for folder in LABELS}
    files.have([*(name for names in folders.values() for name in names), _LADDER_README], progress)
    texts = {folder: _texts(files, names) for folder, names in folders.items() if names}
    pairs = {(folder, method): paired for folder, some in texts.items() for method, paired in _pairs(some)}
    first = next(iter(texts))
    datasets = [_row(first, method, part) for (folder, method), part in _by_dataset(pairs) if folder == first]
    repeated, chain = _repeated(texts), _chain_over_tree(pairs)
    values = {
        "sources": [_row(folder, method, paired) for (folder, method), paired in pairs.items()],
        "datasets": datasets,
        "repeated": repeated,
        "chain_over_tree": None if chain is None else chain.row("ratio"),
        "needed": NEEDED,
        "curves": [
            {"folder": folder, "method": method, "positions": list(_CURVE), "head_equal": _curve(paired)}
            for (folder, method), paired in pairs.items()
        ],
    }
    return Findings(
        compared=tuple(_ladder(files, texts)),
        follows=f"{_equal_follow(pairs)} {_cause_follow(pairs, chain)} {_repeated_follow(repeated)}".strip(),
        tables=(_text(pairs), _datasets_text(pairs, first), _repeated_text(repeated), within_width(NEEDED)),
        values=values,
    )


def _names(files: ReleasedFiles, folder: str) -> list[str]:
    found = record_names(files, f"{folder}/")
    return [name for name in found if name.endswith("_T0.0.jsonl")]


def _texts(files: ReleasedFiles, names: Sequence[str]) -> list[_Text]:
    found = []
    for name in names:
        dataset = name.rpartition("/")[2].removesuffix("_T0.0.jsonl")
        for number, record in enumerate(files.objects(name), 1):
            try:
                found.append(_text_of(dataset, record))
            except (KeyError, TypeError, ValueError) as error:
                raise SimlabError(f"{name}, line {number}: no record of a text, {error!r}") from error
    return sorted(found, key=lambda one: list(DATASETS).index(one.dataset) if one.dataset in DATASETS else -1)


def _text_of(dataset: str, record: Mapping[str, object]) -> _Text:
    ids = record["out_head"]
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise TypeError("out_head is no list of token ids")
    numbers = {name: cast(int, record[name]) for name in ("sample_idx", "turn_index", "num_output")}
    ends = END_OF_TEXT in ids
    head = ids[: ids.index(END_OF_TEXT) + 1] if ends else ids
    return _Text(
        method=str(record["method"]),
        dataset=dataset,
        prompt=int(numbers["sample_idx"]),
        turn=int(numbers["turn_index"]),
        head=tuple(head),
        ends=ends,
        digest=str(record["out_sig"]),
        tokens=int(numbers["num_output"]),
        mean=float(cast(float, record["mean_accept"])),
    )


def _pairs(texts: Sequence[_Text]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each method beside autoregressive decoding, a row for each turn."""
    plain = {(one.dataset, one.prompt, one.turn): one for one in texts if one.method == AUTOREGRESSIVE}
    for method in dict.fromkeys(one.method for one in texts if one.method != AUTOREGRESSIVE):
        rows = [
            _compared(one, plain[one.dataset, one.prompt, one.turn])
            for one in texts
            if one.method == method and (one.dataset, one.prompt, one.turn) in plain
        ]
        if rows:
            yield method, pl.DataFrame(rows)


def _compared(one: _Text, plain: _Text) -> dict[str, object]:
    """What can be said of two texts.

    ``diverges_at``: the first position that differs, or as many as were released and are equal. ``head_equal``: no
    difference in what was released, tokens after the end left out. ``surely_equal``: as a whole; ``possibly_equal``:
    not excluded. A digest is of the tokens after the end too, of which autoregressive decoding has none and a round at
    most a block: a longer text that ends beyond what was released may be equal up to its end.
    """
    shared = min(len(one.head), len(plain.head))
    diverges_at = next((place for place in range(shared) if one.head[place] != plain.head[place]), shared)
    head_equal = one.head == plain.head
    surely = one.digest == plain.digest or (head_equal and one.ends and plain.ends)
    may_be_longer = 0 < one.tokens - plain.tokens <= BLOCK and not (one.ends or plain.ends)
    return {
        "dataset": one.dataset,
        "prompt": one.prompt,
        "turn": one.turn,
        "head_equal": int(head_equal),
        "diverges": int(not head_equal),
        "diverges_at": diverges_at,
        "at_risk": diverges_at + int(not head_equal),
        "digest_equal": int(one.digest == plain.digest),
        "surely_equal": int(surely),
        "possibly_equal": int(surely or (head_equal and may_be_longer)),
        "after_end": int(one.ends and one.tokens > len(one.head)),
        "ends": int(one.ends),
        "one": 1,
    }


def _by_dataset(pairs: Pairs) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    for key, paired in pairs.items():
        for name in paired["dataset"].unique(maintain_order=True):
            yield key, paired.filter(pl.col("dataset") == name)


def _row(folder: str, method: str, paired: pl.DataFrame) -> dict[str, object]:
    datasets = paired["dataset"].unique(maintain_order=True).to_list()
    diverged = paired.filter(pl.col("diverges") == 1)["diverges_at"]
    return {
        "folder": folder,
        "method": method,
        "dataset": datasets[0] if len(datasets) == 1 else None,
        "turns": paired.height,
        **{name: int(paired[name].sum()) for name in _COUNTED},
        **_share(paired, "head_equal").row("head_equal_share"),
        **_rate(paired).row("diverges_per_1000_tokens", factor=1000),
        "median_diverges_at": diverged.median() if len(diverged) else None,
    }


def _share(paired: pl.DataFrame, name: str) -> PromptFigure:
    return prompt_share(paired, name, "one")


def _rate(paired: pl.DataFrame) -> PromptFigure:
    """First differences per token that could have been one."""
    return prompt_ratio(paired, diverges=1, at_risk=-1)


def _curve(paired: pl.DataFrame) -> list[float]:
    """Share of the texts without a difference up to each position; one that ended so remains so."""
    places = paired.select(pl.when(pl.col("diverges") == 1).then("diverges_at").otherwise(HEAD + 1)).to_series()
    return [round(float((places.to_numpy() >= place).mean()), 4) for place in _CURVE]


def _repeated(texts: Mapping[str, Sequence[_Text]]) -> list[dict[str, object]]:
    """How many digests of a method's texts are equal in the first folder of a model that has it and in each later one.

    Args:
        texts: by folder.
    """
    found = []
    for folders in SOURCES.values():
        digests = {
            folder: {(one.method, one.dataset, one.prompt, one.turn): one.digest for one in texts.get(folder, ())}
            for folder in folders
        }
        for method in dict.fromkeys(key[0] for some in digests.values() for key in some):
            first, *later = [folder for folder, some in digests.items() if any(key[0] == method for key in some)]
            for second in later:
                shared = [key for key in digests[first] if key[0] == method and key in digests[second]]
                equal = sum(digests[first][key] == digests[second][key] for key in shared)
                found.append({"first": first, "second": second, "method": method, "turns": len(shared), "equal": equal})
    return found


def _chain_over_tree(pairs: Pairs) -> PromptFigure | None:
    """Texts of the chain with equal first tokens, over those of DominoTree, paired; None where no folder has both."""
    for folder, method in pairs:
        if method == CHAIN and (folder, TREE) in pairs:
            both = pairs[folder, CHAIN].join(pairs[folder, TREE], on=["dataset", "prompt", "turn"], suffix="_tree")
            return prompt_ratio(both, head_equal=1, head_equal_tree=-1)
    return None


def _ladder(files: ReleasedFiles, texts: Mapping[str, Sequence[_Text]]) -> Iterator[ComparedFigure]:
    """The acceptance lengths that their ladder states, of both builders."""
    for folder, some in texts.items():
        for place, method in enumerate(_LADDER if "ladder" in folder else ()):
            rows = [
                {"dataset": one.dataset, "prompt": one.prompt, "mean": one.mean, "one": 1}
                for one in some
                if one.method == method
            ]
            own = mean_over_datasets(pl.DataFrame(rows), "mean", "one")
            pattern = r"both configurations — " + r"\d+\.\d+ → " * place + r"(\d+\.\d+)"
            theirs = files.quoted_pattern(_LADDER_README, pattern)
            name = f"{method}, {folder.rpartition('/')[2]}: mean of datasets' macro averages"
            yield ComparedFigure(name, own.value, theirs, own.interval)


def _text(pairs: Pairs) -> str:
    head = ["turns", "first tokens equal", "% [95 %]", "digest", "equal, at least", "at most", "diverge per 1,000"]
    cells = [["as autoregressive decoding", "", *head]]
    for (folder, method), paired in pairs.items():
        counted = [str(int(paired[name].sum())) for name in _COUNTED[:4]]
        share, rate = _share(paired, "head_equal").text(0, factor=100), _rate(paired).text(1, factor=1000)
        cells.append([LABELS[folder], method, str(paired.height), counted[0], share, *counted[1:], rate])
    after_end = {
        LABELS[folder]: (int(one["after_end"].sum()), int(one["ends"].sum())) for (folder, _), one in pairs.items()
    }
    told = "; ".join(f"{name} {some} of {ended}" for name, (some, ended) in after_end.items())
    note = (
        f"First tokens equal: no difference in the first {HEAD}, or in all of a shorter text up to its end. Digest: "
        "of the whole text. Their digests count a token after the end-of-sequence token where a round committed one; "
        f"of texts that end within {HEAD} tokens (last method of each): {told}. So digests differ of texts that are "
        "equal: at least and at most say how many whole texts are. Diverge: first differences per 1,000 tokens before "
        "which none was. Ladder: three ways to score nodes; builder: the code that makes the tree of the scores."
    )
    return f"{aligned(cells, [True, True, *[False] * len(head)])}\n{within_width(note)}"


def _datasets_text(pairs: Pairs, folder: str) -> str:
    own = {method: paired for (place, method), paired in pairs.items() if place == folder}
    cells = [[f"first tokens equal, {LABELS[folder]}", "turns", *own]]
    for name in next(iter(own.values()))["dataset"].unique(maintain_order=True):
        parts = [paired.filter(pl.col("dataset") == name) for paired in own.values()]
        cells.append([name, str(parts[0].height), *(str(int(part["head_equal"].sum())) for part in parts)])
    return aligned(cells, [True, *[False] * (1 + len(own))])


def _repeated_text(rows: Sequence[Mapping[str, object]]) -> str:
    cells = [["equal digests in two folders", "", ""]]
    for row in rows:
        places = " and ".join(LABELS[str(row[key])] for key in ("first", "second"))
        cells.append([places, str(row["method"]), f"{row['equal']} of {row['turns']}"])
    return aligned(cells, [True, True, False])


def _distinct(pairs: Pairs) -> list[pl.DataFrame]:
    """The first folder of each model and method, so that a text that was decoded again counts once."""
    found: dict[tuple[str, str], pl.DataFrame] = {}
    for model, folders in SOURCES.items():
        for (folder, method), paired in pairs.items():
            if folder in folders:
                found.setdefault((model, method), paired)
    return list(found.values())


def _equal_follow(pairs: Pairs) -> str:
    """How many texts of all methods equal autoregressive decoding's."""
    parts = _distinct(pairs)
    turns = sum(paired.height for paired in parts)
    equal, surely, possibly = (
        sum(int(paired[name].sum()) for paired in parts) for name in ("head_equal", "surely_equal", "possibly_equal")
    )
    if surely == turns:
        return f"all {turns} texts of {len(parts)} models and methods equal autoregressive decoding's."
    told = f"{surely} to {possibly} equal it as a whole" if possibly else "none equals it as a whole"
    return (
        f"of {turns} texts of {len(parts)} models and methods {equal} have the first {HEAD} tokens of autoregressive "
        f"decoding's, and {told}."
    )


def _cause_follow(pairs: Pairs, chain: PromptFigure | None) -> str:
    """What the differences may come from."""
    if all(int(paired["surely_equal"].sum()) == paired.height for paired in _distinct(pairs)):
        return ""
    first = "In bfloat16 near-ties of the target alone give such differences"
    last = "Which of the two each difference is cannot be told without the target's logits."
    if chain is None:
        return f"{first}, and so does a fault. {last}"
    ratio = f"{chain.text()} times as many texts with equal first tokens as DominoTree"
    if not chain.differs:
        return (
            f"{first}; the chain, which has no tree mask, diverges as often ({ratio}). Nothing here points to a fault, "
            f"and nothing excludes one. {last}"
        )
    often = "less" if chain.direction > 0 else "more"
    return f"{first}, but the chain, which has no tree mask, diverges {often} often ({ratio}). {last}"


def _repeated_follow(repeated: Sequence[Mapping[str, object]]) -> str:
    """Whether the differences are chance from run to run; autoregressive texts are not counted."""
    own = [row for row in repeated if row["method"] != AUTOREGRESSIVE]
    equal, turns = (sum(int(str(row[name])) for row in own) for name in ("equal", "turns"))
    if not turns:
        return ""
    told = f"{equal} of {turns} texts that were decoded again have the digest of the first time"
    if equal == turns:
        return f"It is not chance from run to run: {told}."
    if equal:
        return f"Some of it may be chance from run to run: {told}."
    return f"All of it may be chance from run to run: {told}."
