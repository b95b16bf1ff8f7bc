"""Edge models: how likely is a token after its prefix? Begin with models."""
