"""The contract of a policy, for the policies here and for anybody's own, and synthetic texts to check it on.

from simlab.testing import check_policy

check_policy(MyPolicy(budget=16))
"""

from simlab.testing.contract import check_policy, check_sequence

__all__ = ["check_policy", "check_sequence"]
