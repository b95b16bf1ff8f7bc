"""Studies of slin-zhq/Domino-Tree: rounds of Domino and of trees on its drafter.

Begin with records, which reads theirs as tables; `pairs` has their paired comparisons, each other module is a study.
"""
