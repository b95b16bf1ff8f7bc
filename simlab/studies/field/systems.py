"""The systems that the field holds: what turns each to a number of drafted tokens, and which settings it may choose."""

from collections.abc import Sequence
from dataclasses import dataclass

NODES = (8, 16, 32, 64)
"""At so many drafted tokens a round, in the mean, systems are held side by side."""

CLOSE = 0.03
"""Share by which the mean of a system may differ from such a number on the dev prompts."""

FASTEST, PUBLISHED = "fastest", "published"
"""In place of a number of nodes: the setting that is predicted to be fastest on the dev prompts, and the published
one."""

BASELINE, COMPOSITION = "ddtree", "composition"
"""The system that the others are compared with, at as many nodes or at its own fastest setting; and the best across
edges, orders, rules and routes, which is no published system."""

LARGEST = {"self": NODES[-1], "uno": NODES[-1]}
"""The most drafted tokens that rounds of a draft set are timed at: a target that drafts for itself has several masks
behind each, and nobody drafts more."""

BUDGETS: Sequence[float] = range(1, 255)
"""Budgets of tokens."""

_THRESHOLDS = [2 ** (-step / 16) for step in range(1, 257)]
_RATES = [2 ** (14 - step / 16) for step in range(320)]
_GRID = "2/3/4/6/8/12/16/24/32/48"


@dataclass(frozen=True, slots=True)
class System:
    """A row of the field, as policies are typed.

    Attributes:
        name: of the row.
        drafter: the draft set that it reads.
        searched: grids, of which the fastest point on the dev prompts is taken.
        turned: with ``{}`` in place of what is turned until the mean of the drafted tokens is as wanted; of several
            that come there, the one with the most tokens a round on the dev prompts. Empty: its rounds follow from
            prices or from the block alone.
        published: its published setting; empty where none was published, or every size is one.
        knob: what may stand in place of ``{}``, from the fewest drafted tokens to the most.
    """

    name: str
    drafter: str
    searched: tuple[str, ...]
    turned: tuple[str, ...] = ()
    published: str = ""
    knob: Sequence[float] = BUDGETS


def _by_budget(name: str, drafter: str, *settings: str, row: str = "", published: bool = True) -> System:
    """A system whose only size is its budget, at other settings as published."""
    rest = "".join(f",{setting}" for setting in settings)
    own = f"{name}:{rest.removeprefix(',')}".rstrip(":")
    return System(
        row or name,
        drafter,
        (f"{name}:budget={_GRID}{rest}",),
        (f"{name}:budget={{}}{rest}",),
        own if published else "",
    )


_CUTS = ("0.5", "1", "1.5", "2", "3", "4")

SYSTEMS: tuple[System, ...] = (
    System("chain", "dflash", ("chain:length=1/2/3/4/5/6/7",), published="chain"),
    System("adaflash", "dflash", ("adaflash:budget=64,threshold=0.1/0.3/0.5/0.7/0.9",), published="adaflash"),
    System("vllm-adaptive", "dflash", ("vllm-adaptive",), published="vllm-adaptive"),
    System("sglang-dspark", "dflash", ("sglang-dspark",), published="sglang-dspark"),
    _by_budget("ddtree", "dflash", published=False),
    System(
        "survival",
        "dflash",
        ("survival:budget=64,threshold=0.01/0.02/0.05/0.1/0.2",),
        ("survival:budget=254,threshold={}",),
        "survival",
        _THRESHOLDS,
    ),
    _by_budget("entropy-width", "dflash"),
    System("caddtree", "dflash", ("caddtree:budget=64",), ("caddtree:budget={}",), "caddtree:budget=254"),
    System(
        "bastion",
        "dflash",
        ("bastion:budget=64,floor=1/2/4/8/16/32",),
        ("bastion:budget=254,floor={}",),
        "bastion:budget=254",
    ),
    System(
        "eagle4", "dflash", ("eagle4:threshold=1.2/2.4/4.8,top_k=8/64",), ("eagle4:budget={}",), "eagle4", range(7, 64)
    ),
    System("price", "dflash", ("price:budget=64",), ("price:budget=254,rate={}",), knob=_RATES),
    _by_budget("calibrated", "dflash", published=False),
    _by_budget("presto", "dflash"),
    _by_budget("eagle2-beam", "dflash"),
    _by_budget("sequoia", "dflash"),
    _by_budget("edge-llm", "dflash"),
    _by_budget("spine-gap", "dflash"),
    _by_budget("d2sd-boundary", "dflash"),
    System(
        "d2sd",
        "dflash",
        (f"d2sd:budget={_GRID},branches=1/2/4",),
        tuple(f"d2sd:budget={{}},branches={branches}" for branches in (1, 2, 4)),
        "d2sd",
    ),
    _by_budget("mfd", "dflash"),
    _by_budget("taps", "dflash", "beam=48"),
    System(
        "treeflash",
        "dflash",
        (f"treeflash:budget={_GRID},previous=6,top_k=6", f"treeflash:budget={_GRID},previous=16,top_k=16"),
        ("treeflash:budget={},previous=6,top_k=6", "treeflash:budget={},previous=16,top_k=16"),
        "treeflash",
    ),
    System("eagle3", "dflash", ("eagle3:budget=4/8/12/16/24/32,steps=1/2/3/5/7",), ("eagle3:budget={}",), "eagle3"),
    System(
        "whiflash",
        "dflash",
        tuple(
            f'whiflash:entropy=0.25/0.5/1/2/3,sure="ddtree:budget={nodes}",unsure="eagle3:budget=8,steps=2"'
            for nodes in (4, 8, 16)
        ),
        tuple(f'whiflash:entropy={cut},sure="chain:length=7",unsure="eagle3:budget={{}}"' for cut in _CUTS),
    ),
    System(
        "whiflash, network",
        "dflash",
        ('whiflash:network=router,beta=0/0.25/0.5/0.75/1,sure="ddtree:budget=16",unsure="eagle3:budget=16,steps=3"',),
    ),
    System(
        "router",
        "dflash",
        (
            *(f'router:routes="ddtree:budget={nodes}|ar",cuts=0.5/1/1.5/2/3/4' for nodes in (4, 8, 12, 16, 24, 32)),
            'router:routes="ddtree:budget=16|ddtree:budget=4|ar",cuts="0.5|1.5"/"0.5|2"/"1|2"/"1|3"',
        ),
        tuple(f'router:routes="ddtree:budget={{}}|ar",cuts={cut}' for cut in _CUTS),
    ),
    System(
        COMPOSITION,
        "dflash",
        (
            "tree:budget=4/6/8/12/16/24/32,ngram_weight=0/0.1/0.2/0.4",
            "tree:budget=4/6/8/12/16/24/32,ngram_weight=0.2,renormalised=true",
            "tree:budget=4/6/8/12/16/24/32,edges=calibrated",
            "tree:budget=4/6/8/12/16/24/32,edges=transitions,channel=treeflash,ngram_weight=0/0.1/0.2",
            "tree:budget=8/16/24/32,edges=transitions,channel=treeflash,previous=16,top_k=16,ngram_weight=0/0.2",
            "tree:budget=8/16/24/32,edges=pool,channel=taps,pool_beam=48",
            "tree:budget=4/6/8/12/16/24/32,edges=pool,channel=eagle3,pool_beam=10",
            "eagle3:budget=4/6/8/12,steps=1/2/3",
            "tree:budget=64,ngram_weight=0.2,rule=price/ratio,renormalised=true",
            "tree:budget=64,edges=calibrated,rule=price/ratio/survival",
            "tree:budget=64,edges=transitions,channel=treeflash,rule=price/ratio",
            "tree:budget=8/12/16,order=gap/boundaries",
            *(f'router:routes="presto:budget={nodes}|ar",cuts=0.5/1/1.5/2/2.5/3/4' for nodes in (6, 8, 12, 16)),
            *(
                f'router:routes="presto:budget={nodes}|eagle3:budget={head}",cuts=0.25/0.5/1/1.5/2/3/4'
                for nodes in (6, 8, 12)
                for head in ("4,steps=1", "8,steps=2")
            ),
            *(
                f'router:routes="presto:budget={nodes}|eagle3:budget={head}|ar",cuts="0.5|2"/"0.5|3"/"1|3"/"1|4"'
                for nodes in (6, 12)
                for head in ("4,steps=1", "8,steps=2")
            ),
            *(
                f'router:routes="eagle3:budget={head}|ar",cuts=0.5/1/1.5/2/3/4'
                for head in ("4,steps=1", "8,steps=2", "12,steps=2")
            ),
            'router:routes="presto:budget=6|presto:budget=12|ar",cuts="0.25|2"/"0.5|2"/"0.5|3"/"1|3"',
            'router:routes="presto:budget=16|presto:budget=6|ar",cuts="0.25|2"/"0.5|2"/"0.5|3"/"1|3"',
        ),
    ),
    _by_budget("expand-parent", "jetspec", row="jetspec-release"),
    System(
        "jetspec-extended",
        "jetspec",
        ("jetspec-extended:tree_budget=7/14/21/28",),
        ("jetspec-extended:tree_budget={}",),
        "jetspec-extended",
    ),
    _by_budget("jetspec", "jetspec"),
    _by_budget("jetspec", "jetspec", "order=best-first", row="jetspec, best-first", published=False),
    System(
        "self",
        "self",
        ("self:budget=1/2/3/4/6/8/12,masked=-1/0/1/2/4/12",),
        tuple(f"self:budget={{}},masked={masked}" for masked in (-1, 0, 1, 2, 4)),
        "self",
    ),
    System(
        "self, presto",
        "self",
        ("tree:budget=1/2/3/4/6/8/12,masked=-1/0/1/2/4/12,ngram_weight=0.2",),
        tuple(f"tree:budget={{}},masked={masked},ngram_weight=0.2" for masked in (-1, 0, 1, 2, 4)),
    ),
    System("uno", "uno", ("uno:budget=4/6/8/12/16/24/32,top_k=2/4/8",), ("uno:budget={},top_k=8",), "uno"),
)
"""Rows in the order in which they are printed. ``joint`` and ``joint-throughput`` share a budget among texts: of one
text at a time they are ``ddtree`` and ``caddtree``."""

VARIANTS = {
    "jetspec, best-first": "the order is simlab's: the paper adds all children of a node at once",
}
"""Systems that are not as published, and in what, beside reconstructions; all others run at published settings."""
