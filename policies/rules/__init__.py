"""Budget rules: when does a tree stop growing?

Read `budgets` first: the protocol `BudgetRule` and the rules that look at one root. `online_price` learns from
earlier rounds, `shared` looks at all texts of a batch, `serving` remembers rounds of all of them as engines do, with
`acceptance` which one of them learns, and `ratio_curves` are figures about the rules, not a rule.
"""
