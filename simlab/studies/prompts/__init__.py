"""Prompt files of public benchmarks, for `simlab record --prompts`. Begin with prompts.

datasets says what each benchmark asks and how it is split; copies reads its rows, from a file or from the hub.
"""
