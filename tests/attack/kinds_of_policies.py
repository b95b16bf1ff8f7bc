"""A user's own policy that breaks its contract: it raises, ends the process, answers nonsense, prints escapes."""

from pathlib import Path
from random import Random

from attack_cases import GOOD, Damage, Kind
from attack_inputs import POLICY
from kinds_of_files import own

_ENDS = (
    "raise SystemExit",
    "raise SystemExit(0)",
    "raise SystemExit(3)",
    "raise type('Mine', (SystemExit,), {})(0)",
    "import sys; sys.exit('\\x1b[2Jbye')",
    "raise KeyboardInterrupt",
    "raise GeneratorExit",
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
    "{}['key']",
)

_ANSWERS = (
    "None",
    "'tree'",
    "draft",
    "[draft.root_token]",
    "DraftTree.chain(draft.root_token + 1, [])",
    "DraftTree.chain(-1, [])",
    "DraftTree.chain(draft.root_token, [-1])",
    "DraftTree.chain(draft.root_token, [2**31 - 1])",
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
_SPEAKS = (
    "print('\\x1b[2J\\x1b[31mred')",
    "import sys; print('\\u202e', file=sys.stderr)",
    "import warnings; warnings.warn('\\x1b[2Jmine')",
    "import os; os.write(1, b'\\xff\\xfe')",
    "import sys; sys.stdout.close()",
    "import os; os.chdir('/')",
)
_MEDDLES = (
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
_SPOTS = {
    "select": (_SELECT, f"        {{line}}\n{_SELECT}"),
    "select, of long contexts": (_SELECT, f"        if draft.context_length > 12:\n            {{line}}\n{_SELECT}"),
    "the answer of select": (_SELECT, "        return {line}\n"),
    "needs": ("        return Needs(top_k=1)\n", "        {line}\n        return Needs(top_k=1)\n"),
    "the answer of needs": ("Needs(top_k=1)", "{line}"),
    "the answer of budget": ("return self.length\n", "return {line}\n"),
}
"""Where a line goes: the text that gives way to another one with the line in it."""

_STATE = """
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
        return own("policy.py")(folder, chance)
    if what == 1:
        text = chance.choice(_MODULES)
        path.write_text(f"{text}\n", encoding="utf-8")
        return Damage(f"all of it is {text!r}", GOOD)
    if what == 2:
        gone = chance.choice(("    def select", "    @property\n    def needs", "    @property\n    def budget"))
        path.write_text(POLICY.replace(gone, "    def other"))
        return Damage(f"without {gone.split()[-1]}", GOOD)
    if what in (3, 4):
        where = chance.choice(("the answer of select", "the answer of needs", "the answer of budget"))
        answers = _ANSWERS if where.endswith("select") else ("None", "'x'", "-1", "10**9", "1 / 0", "[]")
        line = chance.choice(answers)
    else:
        where = chance.choice(("select", "select, of long contexts", "needs", "start", "update", "its import"))
        lines = (*_SPEAKS, *(_MEDDLES if where.startswith("select") else ()))
        line = chance.choice(_ENDS if chance.random() < 0.7 else lines)
    if where == "its import":
        source = f"{POLICY}\n{line}\n"
    elif where in ("start", "update"):
        source = POLICY.replace("(Stateless)", "").replace("state: None = None", "state: object = None")
        source += _STATE.format(**{"start": "pass", "update": "pass", where: line})
    else:
        before, after = _SPOTS[where]
        source = POLICY.replace(before, after.replace("{line}", line))
    path.write_text(source)
    return Damage(f"in {where}: {line}", GOOD, speaks=line in (*_SPEAKS, *_MEDDLES))


_COMMANDS = (
    "replay --trace trace -p policy.py:Mine --json",
    "replay --trace trace -p policy.py:Mine --out out/r.parquet",
    "policies policy.py:Mine",
    "export --format conformance --trace trace -p policy.py:Mine --out out/c.jsonl",
    "compare trace trace -p policy.py:Mine --json",
    "report --trace trace -p policy.py:Mine --out out/old.html",
)

KINDS = (Kind("policies", ("trace", "policy.py"), _policy, _COMMANDS, 10),)
