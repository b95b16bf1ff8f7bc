"""Whether texts of tree drafting begin as those of autoregressive decoding, at temperature 0.

Released are the first 128 token ids of each text, and a digest of the whole text. A difference is no fault by itself:
in reduced precision a near-tie of the target may fall the other way in a pass of another shape. That takes its logits.
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

AUTOREGRESSIVE = "ar"
SOURCES: Mapping[str, str] = {
    "results/conditioning_ladder/matched_builder": "Qwen3-4B, ladder, one builder",
    "results/conditioning_ladder/best_builder": "Qwen3-4B, ladder, best builders",
    "results/raw/dominotree": "Qwen3-4B, main table",
    "results/raw/8b/dominotree": "Qwen3-8B, main table",
}
"""Folders with heads and digests; the first is the one that is told by dataset."""

_LADDER = ("marg@16", "condstatic@16", "dominotree@16")
_LADDER_README = "results/conditioning_ladder/README.md"
_CURVE = tuple(range(0, HEAD + 1, 4))

NEEDED = (
    "To tell a near-tie from a fault, these would have to be released: of both texts, all token ids; at each position "
    "of both the target's two largest log-probabilities with their ids, at least at the first position that differs, "
    "computed by one teacher-forced pass in float32; dtype, attention kernel and library versions of the runs; and "
    "whether ids behind the end of a text are kept. `simlab confirm` does that pass over every emitted text itself and "
    "gives the verdict exact, ties(n) with the gap of each, or FAILED."
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text as far as it was released.

    Attributes:
        head: its first tokens, cut behind the first `END_OF_TEXT`.
        ends: whether that was found.
        tokens: of the whole text, as they count.
    """

    method: str
    dataset: str
    prompt: int
    turn: int
    head: tuple[int, ...]
    ends: bool
    is_cut: bool
    digest: str
    tokens: int
    mean: float


def domino_lossless(files: ReleasedFiles, progress: bool | None = None) -> Findings:
    """How many texts begin as autoregressive decoding's, how many may be equal, and where they part.

    Args:
        files: of the release.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: the files cannot be had, or are not as they were released.
    """
    folders = {folder: _names(files, folder) for folder in SOURCES}
    files.have([*(name for names in folders.values() for name in names), _LADDER_README], progress)
    texts = {folder: _texts(files, names) for folder, names in folders.items() if names}
    pairs = {(folder, method): paired for folder, some in texts.items() for method, paired in _pairs(some)}
    rows = [_row(folder, method, paired) for (folder, method), paired in pairs.items()]
    first = next(iter(texts))
    datasets = [_row(first, method, part) for (folder, method), part in _by_dataset(pairs) if folder == first]
    repeated = _repeated(texts)
    return Findings(
        compared=tuple(_ladder(files, texts)),
        follows=_follows(pairs, repeated),
        tables=(_text(pairs), _datasets_text(pairs, first), _repeated_text(repeated), within_width(NEEDED)),
        values={
            "sources": rows,
            "datasets": datasets,
            "repeated": repeated,
            "needed": NEEDED,
            "curves": [
                {"folder": folder, "method": method, "positions": list(_CURVE), "alike": _curve(paired)}
                for (folder, method), paired in pairs.items()
            ],
        },
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
        is_cut=len(head) < len(ids),
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

    ``parts_at``: the first position that differs, or as many as were released and are alike. ``alike``: no difference
    in what was released, tokens behind the end left out. ``whole``: surely equal as a whole; ``perhaps``: may be. A
    digest is of the tokens behind the end too, of which autoregressive decoding has none and a round at most a block:
    a longer text that ends beyond what was released may be equal up to its end.
    """
    shared = min(len(one.head), len(plain.head))
    parts_at = next((place for place in range(shared) if one.head[place] != plain.head[place]), shared)
    alike = one.head == plain.head
    whole = one.digest == plain.digest or (alike and one.ends and plain.ends)
    may_be_longer = 0 < one.tokens - plain.tokens <= BLOCK and not (one.ends or plain.ends)
    return {
        "dataset": one.dataset,
        "prompt": one.prompt,
        "turn": one.turn,
        "alike": int(alike),
        "as_released": int(alike and one.is_cut == plain.is_cut),
        "parts": int(not alike),
        "parts_at": parts_at,
        "at_risk": parts_at + int(not alike),
        "digest": int(one.digest == plain.digest),
        "whole": int(whole),
        "perhaps": int(whole or (alike and may_be_longer)),
        "behind_end": int(one.is_cut),
        "ends": int(one.ends),
        "one": 1,
    }


def _by_dataset(
    pairs: Mapping[tuple[str, str], pl.DataFrame],
) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    for key, paired in pairs.items():
        for name in paired["dataset"].unique(maintain_order=True):
            yield key, paired.filter(pl.col("dataset") == name)


def _row(folder: str, method: str, paired: pl.DataFrame) -> dict[str, object]:
    datasets = paired["dataset"].unique(maintain_order=True).to_list()
    sums = {
        name: int(paired[name].sum())
        for name in ("alike", "as_released", "digest", "whole", "perhaps", "ends", "behind_end")
    }
    parted = paired.filter(pl.col("parts") == 1)["parts_at"]
    return {
        "folder": folder,
        "method": method,
        "dataset": datasets[0] if len(datasets) == 1 else None,
        "turns": paired.height,
        **sums,
        **_share(paired, "alike").row("alike_share"),
        **_rate(paired).row("parts_per_token"),
        "median_parts_at": parted.median() if len(parted) else None,
    }


def _share(paired: pl.DataFrame, name: str) -> PromptFigure:
    return prompt_share(paired, name, "one")


def _rate(paired: pl.DataFrame) -> PromptFigure:
    """First differences per token that could have been one."""
    return prompt_ratio(paired, parts=1, at_risk=-1)


def _curve(paired: pl.DataFrame) -> list[float]:
    """Share of the texts that are alike up to each position; one that ended alike stays so."""
    parts = paired.select(pl.when(pl.col("parts") == 1).then("parts_at").otherwise(HEAD + 1)).to_series().to_numpy()
    return [round(float((parts >= place).mean()), 4) for place in _CURVE]


def _repeated(texts: Mapping[str, Sequence[_Text]]) -> list[dict[str, object]]:
    """Texts of one method in two folders of a model: how many digests are equal."""
    found = []
    names = [name for name in texts if "/8b/" not in name]
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            one, other = (
                {(each.method, each.dataset, each.prompt, each.turn): each.digest for each in texts[name]}
                for name in (first, second)
            )
            shared = sorted(one.keys() & other.keys())
            found += [
                {
                    "first": first,
                    "second": second,
                    "method": method,
                    "turns": sum(key[0] == method for key in shared),
                    "equal": sum(key[0] == method and one[key] == other[key] for key in shared),
                }
                for method in dict.fromkeys(key[0] for key in shared)
            ]
    return found


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


def _shown(figure: PromptFigure, factor: float, digits: int) -> str:
    low, high = (factor * end for end in (figure.interval.low, figure.interval.high))
    return f"{factor * figure.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _text(pairs: Mapping[tuple[str, str], pl.DataFrame]) -> str:
    head = ["turns", "alike", "% [95 %]", "digest", "equal, at least", "at most", "parts per 1,000 tokens"]
    cells = [["as autoregressive decoding", "", *head]]
    for (folder, method), paired in pairs.items():
        counted = {name: str(int(paired[name].sum())) for name in ("alike", "digest", "whole", "perhaps")}
        share, rate = _shown(_share(paired, "alike"), 100, 0), _shown(_rate(paired), 1000, 1)
        figures = [counted["alike"], share, counted["digest"], counted["whole"], counted["perhaps"], rate]
        cells.append([SOURCES[folder], method, str(paired.height), *figures])
    behind = {
        SOURCES[folder]: (int(one["behind_end"].sum()), int(one["ends"].sum())) for (folder, _), one in pairs.items()
    }
    told = "; ".join(f"{name} {some} of {ended}" for name, (some, ended) in behind.items())
    note = (
        f"Alike: no difference in the first {HEAD} tokens, or in all of a shorter text up to its end. Digest: of the "
        "whole text. Their digests count a token behind the end of a text where a round committed one; of texts that "
        f"end within {HEAD} tokens (last method of each): {told}. So digests differ of texts that are equal: at least "
        "and at most say how many whole texts are. Parts: first differences per token before which none was."
    )
    return f"{aligned(cells, [True, True, *[False] * 7])}\n{within_width(note)}"


def _datasets_text(pairs: Mapping[tuple[str, str], pl.DataFrame], folder: str) -> str:
    own = {method: paired for (place, method), paired in pairs.items() if place == folder}
    cells = [[f"alike, {SOURCES[folder]}", "turns", *own]]
    for name in next(iter(own.values()))["dataset"].unique(maintain_order=True):
        parts = [paired.filter(pl.col("dataset") == name) for paired in own.values()]
        cells.append([name, str(parts[0].height), *(str(int(part["alike"].sum())) for part in parts)])
    return aligned(cells, [True, *[False] * (1 + len(own))])


def _repeated_text(rows: Sequence[Mapping[str, object]]) -> str:
    cells = [["equal digests in two folders, Qwen3-4B", "", ""]]
    for row in rows:
        places = " and ".join(SOURCES[str(row[key])].removeprefix("Qwen3-4B, ") for key in ("first", "second"))
        cells.append([places, str(row["method"]), f"{row['equal']} of {row['turns']}"])
    return aligned(cells, [True, True, False])


def _follows(pairs: Mapping[tuple[str, str], pl.DataFrame], repeated: Sequence[Mapping[str, object]]) -> str:
    key = next((one for one in pairs if one[1] == "dominotree@16"), next(iter(pairs)))
    paired = pairs[key]
    alike, whole, perhaps = (int(paired[name].sum()) for name in ("alike", "whole", "perhaps"))
    equal, turns = (sum(int(str(row[name])) for row in repeated) for name in ("equal", "turns"))
    return (
        f"{alike} of {paired.height} texts of {key[1]} ({SOURCES[key[0]]}) begin as autoregressive decoding's do, and "
        f"{whole} to {perhaps} are equal to the end: exactness as equal texts does not hold, for any method of theirs. "
        f"It is not chance from run to run: {equal} of {turns} pairs of one text decoded twice have equal digests. "
        "Whether each difference is a near-tie in bfloat16 or a fault cannot be told from what was released."
    )
