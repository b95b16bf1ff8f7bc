"""The named policies, one module each, and nothing else.

Each is a dataclass of settings that composes an order of nodes and a budget rule; `ddtree` is the shortest,
`caddtree` one that needs prices. The table of all is `simlab.policies.POLICIES`. Where an order or a rule is one
policy's own it stands in that policy's module.
"""
