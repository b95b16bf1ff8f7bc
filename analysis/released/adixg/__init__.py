"""The study of adixg/vllm-specdecode-cost-model: what a pass costs by its context, on an H100 in vLLM.

Begin with pass_prices; `records` reads their measurements.
"""
