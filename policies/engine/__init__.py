"""Replays of many policies at once, and the oracle upper bounds.

Read `replay` first: policies of one order of nodes share its layer. `visited_roots` is the compiled walk of fixed
budgets, `lock_step` serves texts in a batch, and `hindsight` has the bounds.
"""
