"""Training a drafter for a target. Begin with dflash."""
