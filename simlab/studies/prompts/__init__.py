"""Prompt files for `simlab record --prompts`, and how many prompts a difference takes. Begin with prompts.

how_many says how large a difference a number of prompts detects, by the formulas of `simlab.analysis.compare`.
"""
