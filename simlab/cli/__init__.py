"""The command line: one module a command, each of which reads options, calls a study and prints. Begin with main."""
