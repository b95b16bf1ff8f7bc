"""Cost tables: curves from samples, views of them, machines that nobody measured. Begin with curves."""
