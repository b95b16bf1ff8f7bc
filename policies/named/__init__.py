"""The named policies, one module each; each is an edge model, an order of nodes and a budget rule."""
