"""Target models: loading, hub files, what a target must support, the built-in one. Begin with model."""
