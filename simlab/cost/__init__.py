"""What rounds cost: measured stage seconds as a table, and rounds priced with it.

`stages` has the names, `table` the prices and what a policy is charged, `mask_rows` passes with masks of the target's
own, `rounds` prices one text.
"""

from simlab.cost.stages import (
    CHANNEL,
    GRID_STAGES,
    PLAIN,
    STAGES,
    StageSeconds,
    Visits,
    channel_stage,
    is_plain,
    plain_beside,
)
from simlab.cost.table import (
    NO_STAGES,
    ChannelSeconds,
    CostTable,
    ReadsChannels,
    StageTable,
    add_seconds,
    price,
    price_rounds,
)

__all__ = [
    "CHANNEL",
    "GRID_STAGES",
    "NO_STAGES",
    "PLAIN",
    "STAGES",
    "ChannelSeconds",
    "CostTable",
    "ReadsChannels",
    "StageSeconds",
    "StageTable",
    "Visits",
    "add_seconds",
    "channel_stage",
    "is_plain",
    "plain_beside",
    "price",
    "price_rounds",
]
