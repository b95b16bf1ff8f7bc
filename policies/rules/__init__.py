"""Budget rules: when does a tree stop growing? Begin with budgets."""
