"""Training a first-order head on a drafter that stays as it is. Begin with run.

loss is what it learns and how it is measured on held-out texts; card describes the result.
"""
