"""What engines' settings and papers' tables are made of.

Begin with engine_settings: a policy as the settings of vLLM, SGLang and TensorRT-LLM; engine_sources says where their
fields were read, commands starts the engines. `tables` writes Markdown and LaTeX.
"""
