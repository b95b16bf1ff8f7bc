"""Confirming predictions: policies run in turn on real prompts, with log, audit and stop rules. Begin with confirm.

setup loads and checks; confirm measures text by text, batch group by group (groups, serving); entries and log keep
what was measured; the package audit says whether texts are those of the target; stop ends a run early.
"""
