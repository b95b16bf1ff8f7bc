"""Public benchmarks: where their rows are, what each asks, and which are for choosing, which for reporting.

A question is put in the words of the DFlash release (z-lab/dflash, ``dflash/benchmark.py`` at commit 1fe684b0, read in
November 2026; AIME and LiveCodeBench as older copies of that file have them), so that acceptance lengths can be held
beside published ones. SPEED-Bench is asked as it stands.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simlab.errors import PromptError

TEST, DEV, ALL = "test", "dev", "all"
"""Prompts to report on, other prompts to choose on, and both where a benchmark has one split only."""

_EVERY, _DEV_REST = 4, 2
"""Of a benchmark with one split, the rows whose number leaves the rest 2 when divided by 4 are for choosing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a benchmark as it was read.

    Attributes:
        where: its file and number, for messages.
        index: its place in the file, from 0.
        fields: by the names of the benchmark's columns.
    """

    where: str
    index: int
    fields: Mapping[str, object]

    def first(self, *names: str) -> object:
        """The first of some fields that is there."""
        value = next((self.fields[name] for name in names if self.fields.get(name) is not None), None)
        if value is None:
            got = ", ".join(self.fields) or "none"
            raise PromptError(f"{self.where}: expected text in {' or '.join(map(repr, names))}; got the keys {got}")
        return value

    def text(self, *names: str) -> str:
        """The first of some fields that is there, as text."""
        value = self.first(*names)
        if not isinstance(value, str) or not value:
            raise PromptError(f"{self.where}: expected text in {names[0]!r}; got {value!r:.40}")
        return value


@dataclass(frozen=True, slots=True)
class Question:
    """What a row asks: its number and its name in the benchmark, and the user's messages one after the other.

    ``dataset`` is what its prompt belongs to where a benchmark tells its rows apart; empty: to the benchmark.
    """

    number: int
    name: str
    turns: tuple[str, ...]
    dataset: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A public data set.

    Attributes:
        name: of its prompts' ``dataset``.
        repository: on the hub.
        files: for each split, where its rows are in the repository; ``*`` stands for anything.
        own_names: what the benchmark calls a split, where its files are of one split each.
        question: what a row asks.
        is_of: whether a row that was read, by the number of its question, belongs to a split.
    """

    name: str
    repository: str
    files: Mapping[str, str]
    own_names: Mapping[str, str]
    question: Callable[[Row], Question]
    is_of: Callable[[int, str], bool]

    def prompt_id(self, question: Question, split: str) -> str:
        """The id of a prompt, the same in every file that has it."""
        own = self.own_names.get(split)
        return "-".join(part for part in (self.name, own, question.name) if part)


_STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."


def _gsm8k(row: Row) -> Question:
    return Question(row.index, str(row.index), (f"{row.text('question')}\n{_STEP_BY_STEP}",))


def _problem(row: Row) -> Question:
    """A problem of mathematics, of MATH-500 or AIME."""
    return Question(row.index, str(row.index), (f"{row.text('problem')}\n{_STEP_BY_STEP}",))


def _mbpp(row: Row) -> Question:
    number = row.first("task_id")
    if type(number) is not int:
        raise PromptError(f"{row.where}: expected a whole number in 'task_id'; got {number!r:.40}")
    return Question(number, str(number), (row.text("prompt", "text"),))


def _humaneval(row: Row) -> Question:
    match = re.fullmatch(r"HumanEval/(\d+)", task := row.text("task_id"))
    if match is None:
        raise PromptError(f"{row.where}: expected HumanEval/N in 'task_id'; got {task!r:.40}")
    asked = "Write a solution to the following problem and make sure that it passes the tests:"
    return Question(int(match[1]), match[1], (f"{asked}\n```python\n{row.text('prompt')}\n```",))


_FIRST_MT_BENCH = 81


def _mt_bench(row: Row) -> Question:
    turns = row.first("turns", "prompt")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise PromptError(f"{row.where}: expected a list of texts in 'turns'; got {turns!r:.40}")
    number = row.fields.get("question_id")
    number = number if type(number) is int else _FIRST_MT_BENCH + row.index
    return Question(number, f"{row.text('category')}-{number}", tuple(turns))


def _drawn(name: str) -> int:
    """A number of a row's own name, so that copies with fewer rows, or in another order, are cut alike."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


_LIVECODEBENCH = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests. You will NOT return anything except "
    "for the program"
)


def _livecodebench(row: Row) -> Question:
    name, code = row.text("question_id"), row.fields.get("starter_code") or ""
    asked = "Use the following code structure:" if code else "Write your code in the following format:"
    parts = (
        _LIVECODEBENCH,
        f"### Question:\n{row.text('question_content')}",
        f"### Format: {asked}\n```python\n{code or '# YOUR CODE HERE'}\n```",
        "### Answer: (use the provided format with backticks)",
    )
    return Question(_drawn(name), name, ("\n\n".join(parts),))


_NOT_FETCHED = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"


def _speed_bench(row: Row) -> Question:
    """The turns of a row; a system message in front is a turn, as AIPerf has it."""
    name, listed = row.text("question_id"), row.first("turns", "messages")
    turns = [_content(row, index, turn) for index, turn in enumerate(listed)] if isinstance(listed, list) else []
    if not turns:
        raise PromptError(f"{row.where}: expected a list of texts in 'turns', or of messages in 'messages'")
    if any(_NOT_FETCHED in turn for turn in turns):
        raise PromptError(
            f"{row.where}: the text of {name} is not in this file, but a note that it must be fetched from its source; "
            "make a whole copy with prepare_data.py of NVIDIA's specdec_bench, and give it with --from FILE"
        )
    return Question(_drawn(name), name, tuple(turns), row.text("category"))


def _content(row: Row, index: int, turn: object) -> str:
    if isinstance(turn, Mapping):
        role = turn.get("role")
        if role != "user" and (role, index) != ("system", 0):
            raise PromptError(
                f"{row.where}: expected messages of the user, and one of the system in front; got {role!r:.40}"
            )
        turn = turn.get("content")
    if not isinstance(turn, str) or not turn:
        raise PromptError(f"{row.where}: expected text in each turn; got {turn!r:.40}")
    return turn


def _of_mbpp(number: int, split: str) -> bool:
    """The splits of Austin et al. (2021), by the task's number; 511 to 600 are its validation."""
    return 11 <= number <= 510 if split == TEST else 601 <= number <= 974


def _fourths(number: int, split: str) -> bool:
    """The one split that there is, cut in two."""
    return split == ALL or (number % _EVERY == _DEV_REST) == (split == DEV)


def _alike(pattern: str) -> Mapping[str, str]:
    return dict.fromkeys((TEST, DEV, ALL), pattern)


BENCHMARKS: Mapping[str, Benchmark] = {
    "gsm8k": Benchmark(
        name="gsm8k",
        repository="openai/gsm8k",
        files={TEST: "main/test-*.parquet", DEV: "main/train-*.parquet"},
        own_names={TEST: "test", DEV: "train"},
        question=_gsm8k,
        is_of=lambda _number, _split: True,
    ),
    "mbpp": Benchmark(
        name="mbpp",
        repository="google-research-datasets/mbpp",
        files={TEST: "sanitized/test-*.parquet", DEV: "sanitized/train-*.parquet"},
        own_names={},
        question=_mbpp,
        is_of=_of_mbpp,
    ),
    "humaneval": Benchmark(
        name="humaneval",
        repository="openai/openai_humaneval",
        files=_alike("openai_humaneval/test-*.parquet"),
        own_names={},
        question=_humaneval,
        is_of=_fourths,
    ),
    "mt-bench": Benchmark(
        name="mt_bench",
        repository="HuggingFaceH4/mt_bench_prompts",
        files=_alike("raw/question.jsonl"),
        own_names={},
        question=_mt_bench,
        is_of=_fourths,
    ),
    **{
        name.replace("_", "-"): Benchmark(
            name=name,
            repository=repository,
            files=_alike(pattern),
            own_names={},
            question=_problem,
            is_of=_fourths,
        )
        for name, repository, pattern in (
            ("math_500", "HuggingFaceH4/MATH-500", "test.jsonl"),
            ("aime24", "HuggingFaceH4/aime_2024", "data/train-*.parquet"),
            ("aime25", "MathArena/aime_2025", "data/train-*.parquet"),
        )
    },
    "livecodebench": Benchmark(
        name="livecodebench",
        repository="livecodebench/code_generation_lite",
        files=_alike("test*.jsonl"),
        own_names={},
        question=_livecodebench,
        is_of=_fourths,
    ),
    **{
        f"speed-bench{size and f'-{size}'}": Benchmark(
            name=f"speed_bench{size and f'_{size}'}",
            repository="nvidia/SPEED-Bench",
            files=_alike(f"{f'throughput_{size}' if size else 'qualitative'}/test-*.parquet"),
            own_names={},
            question=_speed_bench,
            is_of=_fourths,
        )
        for size in ("", "1k", "2k", "8k", "16k", "32k")
    },
}
"""The benchmarks, by the names under which they are asked for."""
