"""A router: how many tokens each route would bring, said before anything is drafted. config is its value."""
