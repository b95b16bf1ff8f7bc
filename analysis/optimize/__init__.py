"""Many candidate policies ranked by sums over prompts, and the few of them that are reported.

Begin with candidate_sums: the sums and the objective. `halving` searches on ever more prompts, `finalists` judges the
chosen policy on prompts that were not searched.
"""
