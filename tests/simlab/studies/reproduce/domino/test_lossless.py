"""Texts of DominoTree beside autoregressive ones: against plain Python, on made-up records and on the real ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_domino import lines, made_up_contents, parsed
from released_data import made_up_release, names_like, real_release, values_of

from simlab.studies.reproduce.domino.lossless import END_OF_TEXT, SOURCES, domino_lossless
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ReleasedFiles

QUIET = ReproduceOptions(progress=False)
LABELS = [folder for folder, *_ in SOURCES]
Values = Mapping[str, Any]


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    return made_up_contents()


def up_to_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END_OF_TEXT) + 1] if END_OF_TEXT in ids else ids


def check_against_oracle(files: ReleasedFiles) -> Values:
    """Counts of texts with equal heads, of equal digests, and the first differences; gives what was found."""
    found = values_of(domino_lossless(files, QUIET))
    assert {row["folder"] for row in found["sources"]} == set(LABELS)
    curves = {(one["folder"], one["method"]): one for one in found["curves"]}
    for row in found["sources"]:
        by_turn: dict[Any, dict[str, Any]] = {}
        for name in names_like(files, f"{row['folder']}/*_T0.0.jsonl"):
            for one in parsed(files.text(name)):
                by_turn.setdefault((name, one["sample_idx"], one["turn_index"]), {})[one["method"]] = one
        pairs = [(turn[row["method"]], turn["ar"]) for turn in by_turn.values()]
        same = [up_to_end(one["out_head"]) == up_to_end(plain["out_head"]) for one, plain in pairs]
        digest = [one["out_sig"] == plain["out_sig"] for one, plain in pairs]
        assert (row["turns"], row["head_equal"], row["digest_equal"]) == (len(pairs), sum(same), sum(digest))
        assert sum(digest) <= row["surely_equal"] <= row["possibly_equal"] <= row["head_equal"]
        after = [
            END_OF_TEXT in one["out_head"] and one["num_output"] > len(up_to_end(one["out_head"])) for one, _ in pairs
        ]
        assert row["after_end"] == sum(after)
        diverges_at = [
            next(index for index in range(999) if one["out_head"][index] != plain["out_head"][index])
            for (one, plain), is_same in zip(pairs, same, strict=True)
            if not is_same
        ]
        at_risk = sum(diverges_at) + len(diverges_at) + sum(
            len(up_to_end(one["out_head"])) for (one, _), is_same in zip(pairs, same, strict=True) if is_same
        )  # fmt: skip
        if diverges_at:
            assert row["diverges_per_1000_tokens"] == pytest.approx(1000 * len(diverges_at) / at_risk, abs=2e-5)
        curve = curves[row["folder"], row["method"]]
        expected = [1 - sum(index < position for index in diverges_at) / len(pairs) for position in curve["positions"]]
        assert curve["head_equal"] == pytest.approx(expected, abs=1e-4)
    return found


def test_is_as_in_plain_python(contents: dict[str, str], tmp_path: Path) -> None:
    found = check_against_oracle(made_up_release(tmp_path, contents))
    assert all(abs(one["difference"]) < 0.006 for one in found["figures"])
    whole = sum(row["head_equal"] for row in found["datasets"] if row["method"] == "dominotree@16")
    first = next(row for row in found["sources"] if row["method"] == "dominotree@16")
    assert whole == first["head_equal"]
    assert 0 < first["head_equal"] < first["turns"]
    assert first["surely_equal"] == first["head_equal"], "all of these texts are short, so each is compared as a whole"


def test_sees_another_token(contents: dict[str, str], tmp_path: Path) -> None:
    """A token that changes before the end is a difference; one after the end is none."""
    name = next(iter(LABELS)) + "/gsm8k_T0.0.jsonl"
    counted = {}
    for index in (0, 6):
        records = parsed(contents[name])
        plain, tree = records[0], next(record for record in records if record["method"] == "dominotree@16")
        tree["out_head"] = [*plain["out_head"], 198, 9]
        tree["out_head"][index] += 1
        files = made_up_release(tmp_path / str(index), contents | {name: lines(records)})
        rows: Any = domino_lossless(files, QUIET).to_json()["sources"]
        counted[index] = next(row["head_equal"] for row in rows if row["method"] == "dominotree@16")
    assert counted[6] == counted[0] + 1


LADDER = "results/conditioning_ladder/"


def long_texts() -> dict[str, list[int]]:
    """Five texts by autoregressive decoding, longer than what was released of them."""
    return {str(prompt): [prompt, *range(1000, 1000 + 150 + prompt)] for prompt in range(5)}


def text_of(method: str, prompt: str, ids: list[int], digest: str) -> dict[str, Any]:
    numbers = {"sample_idx": int(prompt), "turn_index": 0, "num_output": len(ids), "mean_accept": 3.0}
    return {"method": method, "out_head": ids[:128], "out_sig": digest} | numbers


def with_long_texts(contents: dict[str, str], others: Mapping[str, tuple[list[int], str]]) -> dict[str, str]:
    """All folders hold these texts of DominoTree beside autoregressive ones; the first has other methods too."""
    records = [text_of("ar", prompt, ids, f"digest {prompt}") for prompt, ids in long_texts().items()]
    records += [text_of("dominotree@16", prompt, *one) for prompt, one in others.items()]
    changed = {name: text for name, text in contents.items() if not name.startswith(tuple(LABELS))}
    for folder in LABELS:
        some = list(records)
        for method in ("marg@16", "condstatic@16") if folder.startswith(LADDER) else ("chain",):
            some += [record | {"method": method} for record in records if record["method"] != "ar"]
        changed[f"{folder}/gsm8k_T0.0.jsonl"] = lines(some)
    changed[f"{LADDER}README.md"] = "both configurations — 3.00 → 3.00 → 3.00."
    return changed


def first_row(found: Values) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["sources"] if row["method"] == "dominotree@16")
    return row


def test_bounds_of_texts_that_end_beyond_what_was_released(contents: dict[str, str], tmp_path: Path) -> None:
    """Equal digest; longer by a block at most; longer by more; as long with another digest; another first token."""
    plain = long_texts()
    others = {
        "0": (plain["0"], "digest 0"),
        "1": ([*plain["1"], *[7] * 16], "another"),
        "2": ([*plain["2"], *[7] * 17], "another"),
        "3": (plain["3"], "another"),
        "4": ([9, *plain["4"][1:], 7], "another"),
    }
    files = made_up_release(tmp_path, with_long_texts(contents, others))
    row = first_row(values_of(domino_lossless(files, QUIET)))
    counted = [row[key] for key in ("turns", "head_equal", "digest_equal", "surely_equal", "possibly_equal")]
    assert counted == [5, 4, 1, 1, 2]
    assert (row["ends"], row["after_end"]) == (0, 0)


def test_an_end_at_the_last_released_token(contents: dict[str, str], tmp_path: Path) -> None:
    """A longer text whose head ends with the end-of-sequence token has tokens after it."""
    plain = long_texts()
    ended = {prompt: [*ids[:127], END_OF_TEXT] for prompt, ids in plain.items()}
    others = {prompt: ([*ids, 198], "another") for prompt, ids in ended.items()}
    changed = with_long_texts(contents, others)
    for name in [name for name in changed if name.startswith(tuple(LABELS)) and name.endswith(".jsonl")]:
        records = parsed(changed[name])
        for record in records:
            if record["method"] == "ar":
                record |= {"out_head": ended[str(record["sample_idx"])], "num_output": 128}
        changed[name] = lines(records)
    row = first_row(values_of(domino_lossless(made_up_release(tmp_path, changed), QUIET)))
    assert (row["ends"], row["after_end"], row["surely_equal"], row["digest_equal"]) == (5, 5, 5, 0)


def test_a_chain_that_diverges_less(contents: dict[str, str], tmp_path: Path) -> None:
    """All texts of the chain have the first tokens of autoregressive decoding's, a quarter of the tree's do."""
    name = "results/raw/dominotree/gsm8k_T0.0.jsonl"
    plain = {str(prompt): [prompt, 1, 2, 3] for prompt in range(40)}
    records = [text_of(method, prompt, ids, prompt) for method in ("ar", "chain") for prompt, ids in plain.items()]
    records += [
        text_of("dominotree@16", prompt, ids if int(prompt) % 4 == 0 else [99, *ids], f"x{prompt}")
        for prompt, ids in plain.items()
    ]
    others = {other: text for other, text in contents.items() if not other.startswith("results/raw/dominotree/")}
    found = values_of(domino_lossless(made_up_release(tmp_path, others | {name: lines(records)}), QUIET))
    ratio = found["chain_over_tree"]
    assert ratio["ratio"] == pytest.approx(4.0)
    assert 1 < ratio["ratio_ci_low"] < 4 < ratio["ratio_ci_high"]


def test_repeated_texts_are_of_two_folders(contents: dict[str, str], tmp_path: Path) -> None:
    """Of three methods of the ladder and one of the main table; a digest that differs is counted in its pair alone."""
    equal = {prompt: (ids, f"digest {prompt}") for prompt, ids in long_texts().items()}
    changed = with_long_texts(contents, equal)
    name = f"{LADDER}best_builder/gsm8k_T0.0.jsonl"
    for method in ("marg@16", "ar"):
        records = parsed(changed[name])
        next(record for record in records if record["method"] == method)["out_sig"] = "another run"
        files = made_up_release(tmp_path / method, changed | {name: lines(records)})
        rows = values_of(domino_lossless(files, QUIET))["repeated"]
        assert [(row["method"], row["equal"]) for row in rows if row["equal"] != row["turns"]] == [(method, 4)]
        assert sum(row["turns"] for row in rows if row["method"] != "ar") == 20


def test_real_records() -> None:
    """As many texts have equal first tokens as we said before: 255 of 430."""
    found = check_against_oracle(real_release("domino-tree"))
    counted = {(row["folder"], row["method"]): row["head_equal"] for row in found["sources"]}
    assert counted["results/conditioning_ladder/matched_builder", "dominotree@16"] == 255
    assert counted["results/raw/8b/dominotree", "dominotree@16"] == 243
    assert counted["results/raw/dominotree", "chain"] == 258
