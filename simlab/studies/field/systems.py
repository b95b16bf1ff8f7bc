"""The systems that the field holds: what each is at a number of drafted tokens, and which settings it may choose."""

from dataclasses import dataclass

NODES = (16, 64)
"""At so many drafted tokens a round, at most, systems are held side by side."""

HALF = 0.5
"""Drafted tokens a round by which a system may differ from the baseline and still be compared with it by tokens."""

FASTEST, EQUAL, BESIDE = "fastest", "equal", "beside"
"""In place of a number of nodes: whatever setting is predicted to be fastest on the dev prompts. What runs together is
each at its fastest, or systems at equal drafted tokens. Beside these the baseline is predicted, and does not run, at
the drafted tokens that other systems come to."""

BASELINE, COMPOSITION = "ddtree", "composition"
"""The system that the others are compared with, at as many nodes or at its own fastest setting; and the best across
edges, orders, rules and routes, which is no published system."""

_BUDGETS = "2/3/4/6/8/12/16/24/32/48"


@dataclass(frozen=True, slots=True)
class System:
    """A row of the field, as policies are typed; of a grid the dev prompts choose one point.

    Attributes:
        name: of the row.
        drafter: the draft set that it reads.
        equal: at ``{nodes}`` drafted tokens, of which ``{rest}`` are left beside a chain of ``{depth}``; empty where it
            has no size of its own choice.
        searched: of which the fastest is taken.
    """

    name: str
    drafter: str
    equal: str
    searched: tuple[str, ...]


def _by_budget(name: str, drafter: str, *settings: str, row: str = "") -> System:
    """A system whose only size is its budget; ``settings`` are grids that both its sizes and its search take."""
    rest = "".join(f",{setting}" for setting in settings)
    return System(row or name, drafter, f"{name}:budget={{nodes}}{rest}", (f"{name}:budget={_BUDGETS}{rest}",))


SYSTEMS: tuple[System, ...] = (
    System("chain", "dflash", "", ("chain:length=1/2/3/4/5/6/7",)),
    System(
        "adaflash",
        "dflash",
        "adaflash:budget={nodes},threshold=0.3",
        ("adaflash:budget=64,threshold=0.1/0.3/0.5/0.7/0.9",),
    ),
    System("vllm-adaptive", "dflash", "", ("vllm-adaptive",)),
    System("sglang-dspark", "dflash", "", ("sglang-dspark",)),
    _by_budget("ddtree", "dflash"),
    System(
        "survival",
        "dflash",
        "survival:budget={nodes},threshold=0.02",
        ("survival:budget=64,threshold=0.01/0.02/0.05/0.1/0.2",),
    ),
    _by_budget("entropy-width", "dflash"),
    System("caddtree", "dflash", "caddtree:budget={nodes}", ("caddtree:budget=64",)),
    System("bastion", "dflash", "bastion:budget={nodes}", ("bastion:budget=64,floor=1/2/4/8/16/32",)),
    System("price", "dflash", "price:budget={nodes}", ("price:budget=64",)),
    _by_budget("calibrated", "dflash"),
    _by_budget("presto", "dflash", "ngram_weight=0.2"),
    _by_budget("eagle2-beam", "dflash"),
    _by_budget("sequoia", "dflash"),
    _by_budget("spine-gap", "dflash"),
    _by_budget("d2sd-boundary", "dflash"),
    System("d2sd", "dflash", "d2sd:budget={nodes}", ("d2sd:budget=8/12/16/24/32/48,branches=1/2/4",)),
    _by_budget("taps", "dflash", "beam=48"),
    System(
        "treeflash",
        "dflash",
        "treeflash:budget={nodes},previous=16,top_k=16",
        (f"treeflash:budget={_BUDGETS},previous=6,top_k=6", f"treeflash:budget={_BUDGETS},previous=16,top_k=16"),
    ),
    System("eagle3", "dflash", "eagle3:budget={nodes}", ("eagle3:budget=4/8/12/16/24/32,steps=1/2/3/5/7",)),
    System(
        "whiflash",
        "dflash",
        'whiflash:entropy=0.25/0.5/1/2/3,sure="chain:length={depth}",unsure="eagle3:budget={nodes}"',
        ('whiflash:entropy=0.25/0.5/1/2/3,sure="ddtree:budget=8",unsure="eagle3:budget=8,steps=2"',),
    ),
    System(
        "whiflash, network",
        "dflash",
        "",
        ('whiflash:network=router,beta=0/0.25/0.5/0.75/1,sure="ddtree:budget=16",unsure="eagle3:budget=16,steps=3"',),
    ),
    System(
        "router",
        "dflash",
        'router:routes="ddtree:budget={nodes}|ar",cuts=0.5/1/1.5/2/3',
        (
            'router:routes="ddtree:budget=8|ar",cuts=0.5/1/1.5/2/3',
            'router:routes="ddtree:budget=12|ddtree:budget=4|ar",cuts="0.5|1.5"/"0.5|2"/"1|2"/"1|3"',
        ),
    ),
    System("jetspec-release", "jetspec", "expand-parent:budget={nodes}", (f"expand-parent:budget={_BUDGETS}",)),
    System(
        "jetspec-extended",
        "jetspec",
        "jetspec-extended:tree_budget={rest},length={depth}",
        ("jetspec-extended:tree_budget=7/14/21/28",),
    ),
    _by_budget("jetspec", "jetspec"),
    _by_budget("jetspec", "jetspec", "order=best-first", row="jetspec, best-first"),
    System(
        "self",
        "self",
        "self:budget={nodes},masked=-1/0/1/2/4/{nodes}",
        ("self:budget=1/2/3/4/6/8/12,masked=-1/0/1/2/4/12",),
    ),
    System(
        "self, presto",
        "self",
        "tree:budget={nodes},masked=-1/0/1/2/4/{nodes},ngram_weight=0.2",
        ("tree:budget=1/2/3/4/6/8/12,masked=-1/0/1/2/4/12,ngram_weight=0.2",),
    ),
    System("uno", "uno", "uno:budget={nodes},top_k=8", ("uno:budget=4/6/8/12/16/24/32,top_k=2/4/8",)),
)
"""Rows in the order in which they are printed. ``joint`` and ``joint-throughput`` share a budget among texts: of one
text at a time they are ``ddtree`` and ``caddtree``."""

VARIANTS = {"jetspec, best-first": "the order is simlab's: the paper adds all children of a node at once"}
"""Systems that are not as published, and in what, beside reconstructions; all others run at published settings."""

COMPOSED: dict[str, tuple[str, ...]] = {
    "dflash": (
        "tree:budget=4/6/8/12/16/24/32,ngram_weight=0/0.1/0.2/0.4",
        "tree:budget=4/6/8/12/16/24/32,ngram_weight=0.2,renormalised=true",
        "tree:budget=4/6/8/12/16/24/32,edges=calibrated",
        "tree:budget=4/6/8/12/16/24/32,edges=transitions,channel=treeflash,previous=6,top_k=6,ngram_weight=0/0.1/0.2",
        "tree:budget=8/16/24/32,edges=transitions,channel=treeflash,previous=16,top_k=16,ngram_weight=0/0.2",
        "tree:budget=8/16/24/32,edges=pool,channel=taps,pool_beam=48",
        "tree:budget=64,ngram_weight=0.2,rule=price/ratio,renormalised=true",
        "tree:budget=64,edges=calibrated,rule=price/ratio/survival",
        "tree:budget=64,edges=transitions,channel=treeflash,previous=6,top_k=6,rule=price/ratio",
        "tree:budget=8/12/16,order=gap/boundaries",
        'router:routes="presto:budget=6|presto:budget=12|ar",cuts="0.25|2"/"0.5|2"/"0.5|3"/"1|3"',
        'router:routes="presto:budget=12|presto:budget=6|ar",cuts="0.25|2"/"0.5|2"/"0.5|3"/"1|3"',
        'router:routes="presto:budget=8|ar",cuts=1/1.5/2/2.5/3/4',
        'router:routes="presto:budget=12|ar",cuts=1/1.5/2/2.5/3/4',
    ),
}
"""Across which the best composition is searched, by draft set: edges, orders, rules and routes of all systems."""
