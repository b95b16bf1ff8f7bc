"""Routers: policies of policies. Before anything is drafted they say which of their routes serves the round.

Read `routed_policy` first. `cut_rule` says by which number a route is chosen, `recipe` is what named routers are made
from, `route_walk` goes through whole texts at once.
"""
