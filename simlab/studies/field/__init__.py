"""The whole field on one target, one set of prompts and one machine: recorded, chosen on dev, predicted, confirmed."""
