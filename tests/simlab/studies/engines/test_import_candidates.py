"""Candidates that an engine wrote become a trace that claims what the file says, or are counted, or refused."""

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from candidate_files import Line, candidate_lines, write_lines
from commands import output_of, refusal_of
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DOCS
from study_results import refused, rows_of, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.channels import Transitions
from simlab.studies.engines.import_files import import_files
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

TOP_K = 8


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    return write_synthetic_trace(folder, seed=3, num_sequences=5, length=12, depth=4, kept=TOP_K, vocab_size=61)


@pytest.fixture
def lines(recorded: Path) -> list[Line]:
    return candidate_lines(recorded, TOP_K)


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    depth=st.integers(1, 5),
    top_k=st.integers(1, 9),
    vocab_size=st.integers(10, 99),
    length=st.integers(1, 12),
    is_chain=st.booleans(),
)
def test_an_exported_trace_replays_to_the_same_rounds(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    depth: int,
    top_k: int,
    vocab_size: int,
    length: int,
    is_chain: bool,
) -> None:
    folder = tmp_path_factory.mktemp("both")
    trace = write_synthetic_trace(folder / "trace", seed, 3, length, depth, 9, vocab_size)
    behind = {"behind": "chain" if is_chain else "root"}
    lines = candidate_lines(trace, top_k, behind)
    if not any("ids" in line for line in lines):
        return  # texts of one token alone
    path = write_lines(folder / "engine.jsonl", lines)
    import_files([path], out=folder / "imported")
    check_trace(folder / "imported")
    assert open_trace(folder / "imported").manifest.draft_sets["imported"].is_chain == is_chain
    policies = ["chain", f"ddtree:budget={top_k}"]
    wanted, got = (_sums(place, policies) for place in (trace, folder / "imported"))
    assert wanted.equals(got)


def _sums(trace: Path, policies: Sequence[str]) -> pl.DataFrame:
    """The sums of policies, text by text; rows in hindsight are left out, since they know every listed candidate."""
    rows = simlab.replay(trace, policies, progress=False).rows
    keys = ("policy", "sequence", "rounds", "accepted", "committed", "drafted", "clipped")
    return rows.filter(pl.col("name").is_in(["ar", "chain", "ddtree"])).sort("policy", "sequence").select(keys)


@pytest.fixture
def imported(lines: list[Line], tmp_path: Path) -> Path:
    folder = tmp_path / "imported"
    import_files([write_lines(tmp_path / "engine.jsonl", lines)], out=folder)
    return folder


def test_an_imported_trace_says_what_it_is_and_what_it_lacks(imported: Path) -> None:
    manifest = json.loads((imported / "manifest.json").read_text())
    assert manifest["imported"]["engine"] == "made-up engine 1.0"
    assert "the drafter's entropies" in manifest["imported"]["lacks"]
    assert not list(imported.glob("tokens-*"))
    for said in (output_of("inspect", imported), simlab.replay(imported, ["chain"]).text()):
        assert "imported from made-up engine 1.0, without the target's distributions" in " ".join(said.split())
    assert "whole: every file, invariant and id was checked" in output_of("inspect", imported)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("entropy-width:budget=4,top_k=4", "reads the drafter's entropies, and .* wrote candidates alone"),
        ("whiflash:entropy=1", "reads what the target says of the root"),
        ("ddtree:budget=9", "have made-up engine 1.0 write 16 candidates a depth"),
        ("expand-parent:budget=9,width=9", "have made-up engine 1.0 write 16 candidates a depth"),
    ],
)
def test_a_policy_that_reads_what_is_not_known_is_refused(imported: Path, policy: str, said: str) -> None:
    assert re.search(said, refusal_of("replay", "--trace", imported, "-p", policy))


def test_no_engine_s_settings_are_written_of_an_imported_chain(recorded: Path, tmp_path: Path) -> None:
    """Whether it is of an EAGLE-3 head or of another one, its file does not say."""
    file = write_lines(tmp_path / "chain.jsonl", candidate_lines(recorded, 4, {"behind": "chain"}))
    import_files([file], out=tmp_path / "chain")
    assert "no engine's settings of an imported chain" in refused(
        simlab.export, "sglang", policy="chain", trace=tmp_path / "chain"
    )
    assert "no engine's settings of an imported chain" in refused(simlab.advise, tmp_path / "chain", engine="sglang")


def test_nothing_is_recorded_beside_an_imported_trace(imported: Path, tmp_path: Path) -> None:
    """No digest says whether models are those of its texts."""
    said = "no digest says of which models it is"
    assert said in refusal_of("record", "--trace", imported, "--add-draft", "more=x")
    assert said in refusal_of("record", "--trace", imported, "--add-channel", "treeflash=x")
    models = ("--target", "t", "--draft", "d", "--out", tmp_path / "more")
    assert said in refusal_of("record", "--text-from", imported, *models)
    assert "made elsewhere" in refusal_of("confirm", "--trace", imported, "-p", "chain", "--out", tmp_path / "run")


def test_what_the_target_says_of_each_token_is_not_known(imported: Path) -> None:
    trace = open_trace(imported)
    assert "did not write what the target says of each token" in refused(lambda: list(trace.token_rows()))
    assert "did not write what the target says" in refused(lambda: trace.scan("tokens"))
    assert [record.tokens for record in trace.records(["imported"])] == [None] * 5
    assert np.isnan(next(iter(trace.records(["imported"]))).drafts["imported"].entropy).all()


def test_equal_prompts_are_samples_of_one_prompt(lines: list[Line], tmp_path: Path) -> None:
    """Intervals are over prompts, so one that was answered twice must not count twice."""
    texts = [line for line in lines if "token_ids" in line]
    texts[3] |= {name: texts[0][name] for name in ("dataset", "prompt_ids")}
    texts[1]["prompt"] = texts[2]["prompt"] = "talk"
    texts[2]["dataset"] = texts[1]["dataset"]
    import_files([write_lines(tmp_path / "engine.jsonl", lines)], out=tmp_path / "imported")
    found = open_trace(tmp_path / "imported").texts
    assert [record.prompt.sample for record in found] == [0, 1, 0, 0, 0]
    assert [record.prompt.turn for record in found] == [0, 0, 0, 1, 0]
    assert len({record.prompt.prompt_id for record in found}) == 3
    assert found[0].prompt.prompt_id == found[1].prompt.prompt_id
    assert found[1].text.tolist() == texts[3]["token_ids"]


def with_pairs(lines: list[Line], seed: int = 5) -> list[Line]:
    """The lines with made-up scores of each candidate given the one above."""
    rng = np.random.default_rng(seed)
    depth = lines[0]["depth"]
    for line in lines:
        if "ids" in line:
            laws = rng.dirichlet(np.ones(TOP_K + 1), (depth, TOP_K))[..., :TOP_K]
            line["pairs"] = [np.log(law[: 1 if place == 0 else TOP_K]).tolist() for place, law in enumerate(laws)]
    return lines


def test_a_row_with_fewer_candidates_bounds_what_is_exact(lines: list[Line], imported: Path, tmp_path: Path) -> None:
    row = next(line for line in lines if "ids" in line)
    dropped = row["log_probs"][1].pop()
    row["ids"][1].pop()
    row["outside"][1] += float(np.exp(dropped))
    import_files([write_lines(tmp_path / "fewer.jsonl", lines)], out=tmp_path / "fewer")
    kept, whole = (open_trace(place).manifest.draft_sets["imported"] for place in (tmp_path / "fewer", imported))
    assert (kept.min_width, kept.exact_budget) == (TOP_K - 1, TOP_K - 1)
    assert (whole.min_width, whole.exact_budget) == (TOP_K, TOP_K)


def test_pairs_become_a_channel_of_transitions(lines: list[Line], tmp_path: Path) -> None:
    first = next(line for line in lines if "ids" in line)
    # Two candidates that meet on the grid in another order than they are listed: their rows must move with them.
    first["ids"][0][1:3] = sorted(first["ids"][0][1:3], reverse=True)
    first["log_probs"][0] = [-1.0, -2.0, -2.0 - 1e-9, *[-9.0] * (TOP_K - 3)]
    del first["outside"]
    path = write_lines(tmp_path / "engine.jsonl", with_pairs(lines))
    assert "channel transitions" in output_of("import", path, "--out", tmp_path / "imported")
    check_trace(tmp_path / "imported")
    trace = open_trace(tmp_path / "imported")
    (sequence, *_) = trace.recorded("imported", channels=["transitions"])
    found = next(sequence.channels["transitions"].rows())
    assert isinstance(found, Transitions)
    above = first["ids"][0][2]
    row = 1 + found.previous[:TOP_K].tolist().index(above)
    said = dict(zip(found.ids[row].tolist(), found.log_probs[row].tolist(), strict=True))
    assert said == {
        token: pytest.approx(score, abs=1e-4)
        for token, score in zip(first["ids"][1], first["pairs"][1][2], strict=True)
    }
    rows = rows_of(simlab.replay(tmp_path / "imported", ["treeflash:budget=8,channel=transitions"]))
    assert rows["treeflash:budget=8,channel=transitions"]["rounds"] > 0


Change = Callable[[list[Line]], object]


def _round(lines: list[Line]) -> Line:
    return next(line for line in lines if "ids" in line)


def _text(lines: list[Line]) -> Line:
    return next(line for line in lines if "token_ids" in line)


def _without(line: Line, key: str) -> None:
    del line[key]


REFUSED: dict[str, tuple[Change, str]] = {
    "no depth": (lambda lines: _without(lines[0], "depth"), "expected the key 'depth', which is missing"),
    "newer": (lambda lines: lines[0].update(format_version=2), "has format version 2; this simlab reads up to 1"),
    "no such roots": (lambda lines: lines[0].update(roots="some"), "'roots' must be all or visited; got 'some'"),
    "a candidate too large": (
        lambda lines: _round(lines)["ids"][1].__setitem__(0, 61),
        "'ids' holds 61, and the header says vocab_size 61",
    ),
    "a token too large": (lambda lines: _text(lines)["token_ids"].__setitem__(0, 99), "'token_ids' holds 99"),
    "rising": (lambda lines: _round(lines)["log_probs"][2].reverse(), "'log_probs' rise within depth 3"),
    "twice": (lambda lines: _round(lines)["ids"][0].__setitem__(0, _round(lines)["ids"][0][1]), "twice at one depth"),
    "mass": (
        lambda lines: _round(lines)["outside"].__setitem__(0, _round(lines)["outside"][0] + 0.0011),
        "at depth 1 listed and outside mass add up to 1.0011, not 1",
    ),
    "base 2": (
        lambda lines: _round(lines).update(log_probs=[[-0.01] * TOP_K] * 4, outside=None),
        "log-probs must be natural logarithms",
    ),
    "positive": (lambda lines: _round(lines)["log_probs"][0].__setitem__(0, 0.5), "holds 0.5; natural logarithms"),
    "a root too far": (
        lambda lines: _round(lines).update(root=11),
        "'root' is 11, and the text has roots from 0 to 10",
    ),
    "a root twice": (lambda lines: lines.insert(3, deepcopy(_round(lines))), "roots of a text stand once"),
    "a root missing": (lambda lines: lines.remove(_round(lines)), "the text has 10 of 11; root 0 is missing"),
    "more than drafted": (lambda lines: _round(lines).update(drafted=1, accepted=2), "'accepted' is 2, more than"),
    "accepted behind the end": (
        lambda lines: [line for line in lines if line.get("text") == 0][-1].update(accepted=2),
        "behind the root 1 tokens stand in 'token_ids'",
    ),
    "accepted and not drafted": (
        lambda lines: (_text(lines)["token_ids"].__setitem__(1, 60), _round(lines).update(accepted=1)),
        "'accepted' is 1, and token 1 of 'token_ids' is no candidate of depth 1",
    ),
    "too few depths": (lambda lines: _round(lines)["ids"].pop(), "'ids' must be 4 lists, one a depth"),
    "an empty depth": (lambda lines: _round(lines)["ids"].__setitem__(0, []), "from 1 to 8 candidates at each depth"),
    "half a number": (lambda lines: _round(lines)["ids"][0].__setitem__(0, 1.5), "'ids' must hold whole numbers alone"),
    "a text without a line": (lambda lines: lines.remove(_text(lines)), "not of each text that has rounds"),
    "a text twice": (lambda lines: lines.append(_text(lines)), "text 0 has a line already"),
    "stop within": (
        lambda lines: _text(lines)["token_ids"].__setitem__(1, 0),
        "a stop token stands before the end of the text",
    ),
    "no rounds": (lambda lines: lines.__delitem__(slice(2, None)), "holds no line of a round"),
    "something else": (lambda lines: lines.append({"hello": 1}), "expected a line of a text"),
    "pairs at some": (
        lambda lines: _without(_round(with_pairs(lines)), "pairs"),
        "'pairs' is missing, which other rounds have",
    ),
    "pairs too wide": (lambda lines: _round(with_pairs(lines))["pairs"].pop(), "'pairs' must be 4 tables"),
    "visited": (lambda lines: lines[0].update(roots="visited"), "it has rows at visited roots alone"),
    "sampled": (lambda lines: lines[0].update(temperature=0.7), "its temperature is 0.7"),
    "not stated": (lambda lines: lines[0].update(temperature=None), "its temperature is not stated"),
    "noise": (lambda lines: lines[0].update(noise="NOISE!"), "noise must be as --noise is typed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_contradicts_itself_is_refused_and_nothing_is_written(
    lines: list[Line], tmp_path: Path, name: str
) -> None:
    change, said = REFUSED[name]
    change(lines)
    path = write_lines(tmp_path / "engine.jsonl", lines)
    assert said in refusal_of("import", path, "--out", tmp_path / "imported")
    assert [found.name for found in tmp_path.iterdir()] == ["engine.jsonl"]


def test_log_probs_over_the_listed_candidates_make_no_trace(lines: list[Line], tmp_path: Path) -> None:
    lines[0]["normalised"] = "kept"
    for line in lines:
        if "ids" in line:
            line["log_probs"] = [(np.array(part) - np.logaddexp.reduce(part)).tolist() for part in line["log_probs"]]
            del line["outside"]
    path = write_lines(tmp_path / "engine.jsonl", lines)
    assert "normalised over the listed candidates" in refusal_of("import", path, "--out", tmp_path / "imported")
    assert "No trace can be made of it" in output_of("import", path)


def visited(lines: list[Line]) -> list[Line]:
    """The rounds that a chain would have had, as an engine tells them; what is between them is left out."""
    kept: list[Line] = [lines[0] | {"roots": "visited"}]
    text: list[int] = []
    following = 0
    for line in lines[1:]:
        if "token_ids" in line:
            text, following = line["token_ids"], 0
        elif line["root"] < following:
            continue
        else:
            behind = text[line["root"] + 1 :]
            firsts = [ids[0] for ids in line["ids"]]
            accepted = next(
                (n for n, pair in enumerate(zip(firsts, behind, strict=False)) if pair[0] != pair[1]),
                min(len(firsts), len(behind)),
            )
            following = line["root"] + accepted + 1
            line.update(drafted=len(firsts), accepted=accepted)
        kept.append(line)
    return kept


def test_visited_roots_are_counted(lines: list[Line], recorded: Path, tmp_path: Path) -> None:
    """The engine's own rounds are those that a replay of its policy has."""
    found = value_of(import_files([write_lines(tmp_path / "engine.jsonl", visited(lines))]))
    chain = rows_of(simlab.replay(recorded, ["chain"]))["chain"]
    assert "visited roots" in found["why_no_trace"]
    assert found["rounds"] == found["engine_rounds"] == chain["rounds"]
    assert sum(row["engine_accepted"] for row in found["rows"]) == chain["accepted"]
    assert "engine accepted" in output_of("import", tmp_path / "engine.jsonl")


def test_a_file_without_texts_is_counted(lines: list[Line], tmp_path: Path) -> None:
    rounds = [line for line in visited(lines) if "token_ids" not in line]
    for line in rounds[1:]:
        del line["text"], line["root"]
    path = write_lines(tmp_path / "engine.jsonl", rounds)
    found = value_of(import_files([path]))
    assert found["texts"] == 0
    assert found["rows"][0]["roots"] == 0
    assert found["engine_rounds"] == len(rounds) - 1
    assert "it has no lines of texts" in refusal_of("import", path, "--out", tmp_path / "imported")


def test_counts_by_rank_are_those_of_the_trace(lines: list[Line], recorded: Path, tmp_path: Path) -> None:
    found = value_of(import_files([write_lines(tmp_path / "engine.jsonl", lines)]))
    trace = open_trace(recorded)
    ranks = np.concatenate([record.drafts["synthetic"].true_rank for record in trace.records(["synthetic"])])
    valid = np.concatenate([record.drafts["synthetic"].valid for record in trace.records(["synthetic"])])
    for depth, row in enumerate(found["rows"]):
        here = ranks[valid[:, depth], depth]
        assert row["roots"] == len(here)
        assert row["right_by_rank"] == np.bincount(here[(here >= 0) & (here < TOP_K)], minlength=TOP_K).tolist()


def made_up_tensors(visit_all: bool) -> dict[str, Any]:
    """What ddtree writes of DFlash 2, with arrays in place of tensors: 7 depths of 16 candidates."""
    rng, depth, top_k = np.random.default_rng(8), 7, 16
    prompt, text = rng.integers(0, 200, 5), rng.integers(0, 200, 30)
    rounds, root = [], 0
    while root < len(text) - 1:
        logits = rng.normal(size=(depth, 200)) * 3
        ahead = text[root + 1 : root + 1 + depth]
        right = int(rng.integers(0, len(ahead) + 1))
        logits[np.arange(right), ahead[:right]] = 12.0
        logits[np.arange(len(ahead))[right : right + 1], ahead[right : right + 1]] = -9.0
        ids = np.argsort(-logits, axis=1)[:, :top_k]
        unary = np.take_along_axis(logits, ids, axis=1)
        committed = 1 if visit_all else min(right + 1, len(text) - 1 - root)
        rounds.append(
            {
                "prefix_token_ids": np.concatenate([prompt, text[: root + 1]]),
                "anchor_position": len(prompt) + root,
                "anchor_token_id": int(text[root]),
                "candidate_token_ids": ids,
                "candidate_unary_logits": unary,
                "unary_logsumexp": np.logaddexp.reduce(logits, axis=1),
                "anchor_final_scores": unary[0] + rng.normal(size=top_k),
                "pairwise_final_scores": unary[1:, None] + rng.normal(size=(depth - 1, top_k, top_k)),
                "accepted_draft_tokens": min(right, len(text) - 1 - root),
                "committed_token_ids": text[root + 1 : root + 1 + committed],
            }
        )
        root += committed
    return {"prompts": [{"rounds": rounds}, {"rounds": []}]}


@pytest.mark.parametrize("roots", ["visited", "all"])
def test_tensors_of_ddtree_are_converted_as_the_page_says(roots: str, tmp_path: Path) -> None:
    page = (DOCS / "reference" / "candidates.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    written: dict[str, Any] = {}
    exec(block[1], written)
    about = {"engine": "ddtree", "target": "t", "drafter": "d", "vocab_size": 200, "depth": 7, "top_k": 16, "block": 8}
    about |= {"roots": roots, "root_seen": True, "temperature": 0, "sampling": None, "noise": None}
    artifact = made_up_tensors(roots == "all")
    path = write_lines(tmp_path / "ddtree.jsonl", list(written["lines_of"](artifact, about, "gsm8k", {151645})))
    found = value_of(import_files([path]))
    rounds = artifact["prompts"][0]["rounds"]
    assert found["engine_rounds"] == found["rounds"] == len(rounds)
    assert sum(row["engine_accepted"] for row in found["rows"]) == sum(one["accepted_draft_tokens"] for one in rounds)
    if roots == "visited":
        assert "visited roots alone" in refusal_of("import", path, "--out", tmp_path / "trace")
        return
    import_files([path], out=tmp_path / "trace")
    check_trace(tmp_path / "trace")
    (sequence,) = open_trace(tmp_path / "trace").recorded("imported", channels=["transitions"])
    first = next(sequence.channels["transitions"].rows())
    assert isinstance(first, Transitions)
    # A row has the mass that the drafter gave to all 16: what DFlash 2's channel has, recorded here.
    kept = np.exp(rounds[0]["candidate_unary_logits"] - rounds[0]["unary_logsumexp"][:, None]).sum(axis=1)
    masses = np.exp(first.log_probs.astype(float)).sum(axis=1)
    assert masses == pytest.approx(np.repeat(kept, [1] + [16] * 6), abs=1e-3)
    best = int(rounds[0]["candidate_token_ids"][0][np.argmax(rounds[0]["anchor_final_scores"])])
    assert first.ids[0, 0] == best


def test_what_a_killed_import_left_is_removed(lines: list[Line], tmp_path: Path) -> None:
    path = write_lines(tmp_path / "engine.jsonl", lines)
    ours, theirs = tmp_path / ".imported.0123456789ab.part", tmp_path / ".imported.x.0123456789ab.part"
    for left in (ours, theirs):
        (left / "unfinished").mkdir(parents=True)
    import_files([path], out=tmp_path / "imported")
    assert not ours.exists()
    assert theirs.exists()


def test_options_of_other_files_and_a_folder_that_is_taken_are_refused(
    lines: list[Line], imported: Path, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "other.jsonl", lines)
    assert "about which --draft-s can change nothing" in refusal_of("import", path, "--draft-s", "0.1")
    assert "holds a complete trace" in refusal_of("import", path, "--out", imported)
    assert "is a file" in refusal_of("import", path, "--out", path)
    assert "is not empty" in refusal_of("import", path, "--out", tmp_path)
