"""A user's own policy that breaks its contract: it raises, ends the process, answers nonsense, prints escapes."""

from pathlib import Path
from random import Random

from attack_cases import Command, Damage, Kind
from attack_inputs import POLICY
from damage_bytes import damage_bytes

_ENDS = (
    "raise SystemExit",
    "raise SystemExit(0)",
    "raise SystemExit(3)",
    "raise SystemExit('bye')",
    "raise type('Mine', (SystemExit,), {})(0)",
    "import sys; sys.exit()",
    "import sys; sys.exit('\\x1b[2Jbye')",
    "raise KeyboardInterrupt",
    "raise GeneratorExit",
    "raise BaseException('mine')",
    "raise type('Mine', (BaseException,), {})('\\x1b[31mred')",
    "raise ValueError('\\x1b[2J\\u202ea\\nb')",
    "raise ValueError('x' * 1_000_000)",
    "raise OSError(28, 'No space left on device', 'x')",
    "raise BrokenPipeError",
    "raise MemoryError",
    "raise StopIteration",
    "raise NotImplementedError",
    "raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'mine')",
    "raise type('Mine', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "from simlab.errors import SimlabError; raise SimlabError('a sentence\\nin two lines')",
    "(lambda f: f(f))(lambda f: f(f))",
    "assert False",
    "1 / 0",
    "[][3]",
    "{}['key']",
)

_ANSWERS = (
    "None",
    "42",
    "'tree'",
    "draft",
    "[draft.root_token]",
    "DraftTree.chain(draft.root_token + 1, [])",
    "DraftTree.chain(-1, [])",
    "DraftTree.chain(draft.root_token, [-1])",
    "DraftTree.chain(draft.root_token, [2**31 - 1])",
    "DraftTree.chain(draft.root_token, [10**9, 1])",
    "DraftTree.chain(draft.root_token, list(range(1, 4000)))",
    "DraftTree.chain(draft.root_token, [1.5])",
    "DraftTree(np.array([draft.root_token, 1, 1]), np.array([-1, 0, 0]))",
    "DraftTree(np.array([draft.root_token, 1, 2]), np.array([-1, 2, 0]))",
    "DraftTree(np.array([]), np.array([]))",
    "DraftTree(np.array([draft.root_token, 5]), np.array([-1, np.nan]))",
    "type('Tree', (), {'tokens': np.array([1]), 'parents': np.array([-1]), 'num_drafted': 0})()",
    "object.__new__(DraftTree)",
)

# Not asked: what changes the interpreter itself, such as `sys.stdout = None`, `os.close(1)` or a tiny limit of
# recursion. Such a file is refused, but after whole outputs were written; a policy file is a program that the
# user runs.
_PRINTS = (
    "print('\\x1b[2J\\x1b[31mred')",
    "import sys; print('\\u202e', file=sys.stderr)",
    "import warnings; warnings.warn('\\x1b[2Jmine')",
    "import os; os.write(1, b'\\xff\\xfe')",
    "import sys; sys.stdout.close()",
    "import os; os.chdir('/')",
    "draft.drafted().__class__.__init__(draft.drafted())",
    "object.__setattr__(draft, 'root_token', 3)",
    "draft.drafted().log_probs[:] = 0",
)

_MODULES = (
    "class Mine: pass",
    "Mine = 3",
    "class Mine:\n    select = None",
    "class Mine:\n    def select(self): return None",
    "from simlab.policies import Chain as Mine; Mine.select = None",
    "from dataclasses import dataclass\n@dataclass\nclass Mine:\n    x: object\n    def select(self, d): return d",
    "import nowhere_to_be_found",
    "def f(:",
    "\0",
    "# -*- coding: nonsense -*-",
    "class Mine:\n    @property\n    def select(self): raise ValueError('mine')",
    "class M(type):\n    def __call__(cls, *a, **k): raise SystemExit(0)\nclass Mine(metaclass=M):\n    select = 1",
    "class Mine:\n    def __init__(self): raise RuntimeError('\\x1b[31m')\n    def select(self, d, s=None): return d",
    "class Mine:\n    def __hash__(self): raise ValueError\n    def select(self, d, s): return None",
    "class Mine:\n    def __getattr__(self, name): raise SystemExit(0)\n    def select(self, d, s): return None",
    "class Mine:\n    def __repr__(self): return '\\x1b[31m' * 1000\n    def select(self, d, s): return None",
)

_SELECT = "        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(self.length))\n"

_MEMORY = """
    def start(self, prompt: object) -> object:
        {start}
        return 0

    def update(self, state: object, outcome: object) -> object:
        {update}
        return state
"""


def _policy(folder: Path, chance: Random) -> Damage:
    path, what = folder / "policy.py", chance.randrange(10)
    if what == 0:
        return damage_bytes(path, chance, possible=True)
    if what == 1:
        text = chance.choice(_MODULES)
        path.write_text(text + "\n", encoding="utf-8")
        return Damage(f"all of it is {text!r}", possible=True)
    if what == 2 and chance.random() < 0.3:
        gone = chance.choice(
            ("    def select", "    @property\n    def needs", "    @property\n    def budget", "(Stateless)")
        )
        wrong = chance.choice(("None", "'x'", "-1", "10**9", "1 / 0", "[]"))
        text = (
            POLICY.replace("Needs(top_k=1)", wrong) if chance.random() < 0.3 else POLICY.replace(gone, "    def other")
        )
        path.write_text(text.replace("class Mine    def other", "class Mine"))
        return Damage(f"without {gone.split()[-1]}, or needs are {wrong}", possible=True)
    if what == 2:
        line = chance.choice((*_ENDS, *_PRINTS[:6]))
        path.write_text(f"{POLICY}\n{line}\n")
        return Damage(f"while it is imported: {line}", line in _PRINTS, speaks=line in _PRINTS)
    source = POLICY.replace("import dataclass\n", "import dataclass\n\nimport numpy as np\n")
    if what in (3, 4):
        answer = chance.choice(_ANSWERS)
        path.write_text(source.replace(_SELECT, f"        return {answer}\n"))
        return Damage(f"select gives back {answer}", possible=True)
    if what == 5:
        line = chance.choice((*_ENDS, *_PRINTS))
        begins = chance.random() < 0.5
        added = _MEMORY.format(start=line if begins else "pass", update="pass" if begins else line)
        path.write_text(source.replace("(Stateless)", "").replace("state: None = None", "state: object = None") + added)
        where = "start" if begins else "update"
        return Damage(f"in {where}: {line}", line in _PRINTS, speaks=line in _PRINTS)
    line = chance.choice(_ENDS if what < 9 else _PRINTS)
    late = "        if draft.context_length > 12:\n            " if chance.random() < 0.5 else "        "
    path.write_text(source.replace(_SELECT, f"{late}{line}\n{_SELECT}"))
    where = "select, of long contexts" if len(late) > 8 else "select"
    return Damage(f"in {where}: {line}", line in _PRINTS, speaks=line in _PRINTS)


_MINE = ("-p", "policy.py:Mine")
_READERS = (
    Command(("replay", "--trace", "trace", *_MINE, "--json", "--threads", "1")),
    Command(("replay", "--trace", "trace", *_MINE, "--out", "out/r.parquet", "--threads", "1"), ("out/r.parquet",)),
    Command(("policies", "policy.py:Mine")),
    Command(
        ("export", "--format", "conformance", "--trace", "trace", *_MINE, "--out", "out/c.jsonl"), ("out/c.jsonl",)
    ),
    Command(("compare", "trace", "trace", *_MINE, "--json")),
    Command(("report", "--trace", "trace", *_MINE, "--out", "out/r.html"), ("out/r.html",), True, slow=True),
)

KINDS = (Kind("policies", ("trace", "policy.py"), _policy, _READERS, share=10),)
