"""What a log of one policy's rounds would predict for other policies, beside the exact replay.

Begin with logs: the ways to estimate from such a log. `table` compares them with the truth.
"""
