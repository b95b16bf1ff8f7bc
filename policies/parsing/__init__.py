"""Policies as people type them: parsing, grids, files of one's own, descriptions. Begin with parse."""
