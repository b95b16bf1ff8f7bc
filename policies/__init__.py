"""Draft-tree policies: an edge model scores candidates, an order lines them up as nodes, a rule says how many enter.

`POLICIES` is the table of all named policies. A new one touches two files: its own module in `simlab.policies.named`,
and a line here. Read `composition` first, then `named.tree`, which puts any parts together, and `named.ddtree` and
`named.caddtree`, which are some of its settings. Each package imports only from those before it: the module `settings`
(which values have sense), `edges`, `costs`, the module `artefacts` (what policies were fitted or measured with),
`kernels`, `orders`, `rules`, the module `composition`, `routing`, `named`, `engine`, `fits`, the module `conformance`,
this table, `parsing`.

Two files are generated anew where the table grows: `make reference`, and
``tests/golden/ids.json``, whose test prints it.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from simlab.policies.routing.routed_policy import PolicyClass


class PolicyTable(Mapping[str, PolicyClass]):
    """Policy classes by the names that people type; a class is imported when it is asked for."""

    def __init__(self, classes: dict[str, str]) -> None:
        """Take ``module:Class`` by name, of modules in `simlab.policies.named`."""
        self._classes = classes
        self._imported: dict[str, PolicyClass] = {}

    def __getitem__(self, name: str) -> PolicyClass:
        if name not in self._imported:
            module, _, class_name = self._classes[name].partition(":")
            self._imported[name] = getattr(import_module(f"simlab.policies.named.{module}"), class_name)
        return self._imported[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


POLICIES = PolicyTable(
    {
        "ar": "autoregressive:Autoregressive",
        "chain": "chain:Chain",
        "adaflash": "adaflash:AdaFlash",
        "ddtree": "ddtree:DDTree",
        "joint": "joint_budget:JointBudget",
        "joint-throughput": "joint_throughput:JointThroughput",
        "vllm-adaptive": "served.vllm_adaptive:VllmAdaptive",
        "sglang-dspark": "served.sglang_dspark:SglangDSpark",
        "survival": "survival:SurvivalThreshold",
        "entropy-width": "entropy_width:EntropyWidth",
        "caddtree": "caddtree:CaDDTree",
        "bastion": "bastion:Bastion",
        "price": "price:Price",
        "calibrated": "calibrated:CalibratedTree",
        "presto": "presto:Presto",
        "expand-parent": "expand_parent:ExpandParentTree",
        "eagle2-beam": "eagle2_beam:Eagle2Beam",
        "sequoia": "sequoia:Sequoia",
        "d2sd": "d2sd:D2SD",
        "d2sd-boundary": "d2sd_boundary:D2SDBoundary",
        "spine-gap": "spine_gap:SpineGap",
        "taps": "taps:Taps",
        "jetspec": "jetspec:JetSpec",
        "jetspec-extended": "jetspec_extended:JetSpecExtended",
        "eagle3": "eagle3:Eagle3",
        "treeflash": "treeflash:TreeFlash",
        "router": "router:Router",
        "whiflash": "whiflash:WhiFlash",
        "self": "self_speculation:SelfSpeculation",
        "uno": "served.engine_first:Uno",
        "edge-llm": "served.engine_first:EdgeLLM",
        "mfd": "mfd:MFD",
        "eagle4": "served.eagle4:Eagle4",
        "tree": "tree:Tree",
    }
)

__all__ = ["POLICIES"]
