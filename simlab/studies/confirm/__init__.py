"""Predictions beside runs of the real models: what is run, measured, audited and judged. Begin with confirm, then run."""
