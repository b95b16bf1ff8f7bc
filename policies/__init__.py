"""Draft-tree policies: an edge model scores candidates, an order lines them up as nodes, a rule says how many enter.

`POLICIES` is the table of all named policies. A new one touches two files: its own module in `simlab.policies.named`,
and a line here. Read `composition` first, then `named.tree`, which puts any parts together, and `named.ddtree` and
`named.caddtree`, which are some of its settings. Each package imports only from those before it: the module `settings`
(which values have sense), `edges`, `costs`, the module `artefacts` (what policies were fitted or measured with),
`kernels`, `orders`, `rules`, the module `composition`, `routing`, `named`, `engine`, `fits`, the module `conformance`,
this table, `parsing`.

Two files are generated anew where the table grows: `simlab policies --markdown > docs/reference/policies.md`, and
``tests/golden/ids.json``, whose test prints it.
"""

from simlab.policies.named.adaflash import AdaFlash
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.bastion import Bastion
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.d2sd_boundary import D2SDBoundary
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.eagle2_beam import Eagle2Beam
from simlab.policies.named.eagle3 import Eagle3
from simlab.policies.named.entropy_width import EntropyWidth
from simlab.policies.named.expand_parent import ExpandParentTree
from simlab.policies.named.jetspec import JetSpec
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.policies.named.joint_budget import JointBudget
from simlab.policies.named.joint_throughput import JointThroughput
from simlab.policies.named.presto import Presto
from simlab.policies.named.price import Price
from simlab.policies.named.router import Router
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policies.named.sequoia import Sequoia
from simlab.policies.named.sglang_dspark import SglangDSpark
from simlab.policies.named.spine_gap import SpineGap
from simlab.policies.named.survival import SurvivalThreshold
from simlab.policies.named.taps import Taps
from simlab.policies.named.tree import Tree
from simlab.policies.named.treeflash import TreeFlash
from simlab.policies.named.vllm_adaptive import VllmAdaptive
from simlab.policies.named.whiflash import WhiFlash
from simlab.policies.routing.routed_policy import PolicyClass

POLICIES: dict[str, PolicyClass] = {
    "ar": Autoregressive,
    "chain": Chain,
    "adaflash": AdaFlash,
    "ddtree": DDTree,
    "joint": JointBudget,
    "joint-throughput": JointThroughput,
    "vllm-adaptive": VllmAdaptive,
    "sglang-dspark": SglangDSpark,
    "survival": SurvivalThreshold,
    "entropy-width": EntropyWidth,
    "caddtree": CaDDTree,
    "bastion": Bastion,
    "price": Price,
    "calibrated": CalibratedTree,
    "presto": Presto,
    "expand-parent": ExpandParentTree,
    "eagle2-beam": Eagle2Beam,
    "sequoia": Sequoia,
    "d2sd": D2SD,
    "d2sd-boundary": D2SDBoundary,
    "spine-gap": SpineGap,
    "taps": Taps,
    "jetspec": JetSpec,
    "jetspec-extended": JetSpecExtended,
    "eagle3": Eagle3,
    "treeflash": TreeFlash,
    "router": Router,
    "whiflash": WhiFlash,
    "self": SelfSpeculation,
    "tree": Tree,
}

__all__ = ["POLICIES"]
