"""Experiment trackers: what a run writes to Weights & Biases, MLflow or trackio, where somebody asked for it.

Begin with `tracker`: a run is opened with its settings, and takes numbers, results and files. `writers` speaks to each
tracker. Nothing here is imported, and nothing is sent, unless a tracker was named.
"""
