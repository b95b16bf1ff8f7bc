"""Budget rules: when does a tree stop growing?

Read `budgets` first: the protocol `BudgetRule` and the rules that look at one root. `online_price` learns from
earlier rounds, `shared` looks at all texts of a batch, and `ratio_curves` are figures about the rules, not a rule.
"""
