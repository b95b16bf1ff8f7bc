"""The named policies, one module each, and nothing else.

Each is a dataclass of settings. `tree` composes any edges, order and rule, and most others are some settings of it:
`ddtree` is the shortest, `caddtree` one that needs prices. The table of all is `simlab.policies.POLICIES`. Where an
order or a rule is one policy's own it stands in that policy's module, which composes them itself.
"""
