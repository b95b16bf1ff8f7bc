"""Predictions beside runs of the real models: what is run, measured, audited and judged. First confirm, then run."""
