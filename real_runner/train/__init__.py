"""Training a drafter for a target. Begin with train.

options is what a person asks; setup begins a run from text, features and a drafter; dflash is the training loop,
losses its loss; dev_score and curve measure it; state keeps it; model_card describes the result.
"""
