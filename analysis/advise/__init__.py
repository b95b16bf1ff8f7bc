"""Whether to draft at all, and chains or trees, at each batch size: verdicts as values, and the page that says them.

Begin with `verdicts.BatchAdvice`: the best chain and the best tree of a batch size, held against each other and against
autoregressive decoding, and the choice that follows from the verdicts. The sentences stand in the same module.
"""
