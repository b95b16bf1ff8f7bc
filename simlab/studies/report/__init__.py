"""One HTML file of results: what goes into it. Begin with build."""
