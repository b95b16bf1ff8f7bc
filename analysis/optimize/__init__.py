"""Candidates ranked by sums over prompts: finalists, halving, the worst of several prices."""
