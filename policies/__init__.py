"""The named policies. A new one is its own module and one line here."""

from collections.abc import Callable

from simlab.policies.adaflash import AdaFlash
from simlab.policies.autoregressive import Autoregressive
from simlab.policies.bastion import Bastion
from simlab.policies.beam import Eagle2Beam
from simlab.policies.best_first import DDTree
from simlab.policies.caddtree import CaDDTree
from simlab.policies.calibrated import CalibratedTree
from simlab.policies.chain import Chain
from simlab.policies.d2sd_boundary import D2SDBoundary
from simlab.policies.entropy_width import EntropyWidth
from simlab.policies.expand_parent import ExpandParentTree
from simlab.policies.joint_budget import JointBudget
from simlab.policies.joint_throughput import JointThroughput
from simlab.policies.presto import Presto
from simlab.policies.price import Price
from simlab.policies.sequoia import Sequoia
from simlab.policies.spine_gap import SpineGap
from simlab.policies.survival import SurvivalThreshold
from simlab.policy import AnyPolicy

POLICIES: dict[str, Callable[..., AnyPolicy]] = {
    "ar": Autoregressive,
    "chain": Chain,
    "adaflash": AdaFlash,
    "ddtree": DDTree,
    "joint": JointBudget,
    "joint-throughput": JointThroughput,
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
    "d2sd-boundary": D2SDBoundary,
    "spine-gap": SpineGap,
}

__all__ = ["POLICIES"]
