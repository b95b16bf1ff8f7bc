"""What the layers of a drafter show to the slots of a block.

A plain layer shows every slot the whole context before the root and the whole block. The two publishers
of DFlash checkpoints restrict this in two ways:

* dflash 0.1.0 (PyPI) measures a window from each slot's own position, in context and block alike;
* speculators 0.9 (PyPI) measures it from the root, for all slots, and never cuts the block.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerView:
    """What one layer shows.

    Attributes:
        causal: a slot sees no later slot of its block.
        window: tokens; None: no window.
        from_root: the window is measured from the root (``context >= root - window``) and spares the block;
            otherwise from each slot (``|slot - other| < window``).
    """

    causal: bool = False
    window: int | None = None
    from_root: bool = False

    @property
    def shows_all(self) -> bool:
        """Whether this is a plain layer."""
        return not self.causal and self.window is None

    def __str__(self) -> str:
        parts = []
        if self.window is not None:
            parts.append(f"the last {self.window:,} tokens from {'the root' if self.from_root else 'each slot'}")
        if self.causal:
            parts.append("of the block what is before a slot")
        return " and ".join(parts) or "everything"


PLAIN = LayerView()
CAUSAL = LayerView(causal=True)
"""A layer of a causal head, after JetSpec (2026), arXiv 2606.18394: the whole context, and the slots before."""
