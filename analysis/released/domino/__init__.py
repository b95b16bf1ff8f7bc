"""Studies of slin-zhq/Domino-Tree: rounds of Domino and of trees on its drafter.

Begin with records, which reads theirs as tables. `rounds`, `gsm8k`, `caddtree` and `lossless` are studies; the first of
them takes means, arms, pairs, sessions and draft sampling from the modules of these names.
"""
