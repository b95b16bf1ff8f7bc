"""The figures that engines' settings and papers' tables are made of."""
