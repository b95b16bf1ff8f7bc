"""Rules of serving engines on a trace: what they lose against hindsight, and whether what they learn is calibrated.

Read `schedules` first: a replay of each rule that is looked at. `figures` are speeds and calibration with intervals.
"""
