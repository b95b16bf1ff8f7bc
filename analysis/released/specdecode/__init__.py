"""The study of SpecDecode-Bench/simulator: accepted lengths of chains at every position, by EAGLE and n-grams.

Begin with study. A chain record has no candidates, so chains are all that can be replayed on it.
"""
