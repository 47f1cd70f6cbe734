"""Recipe `llm_tools`: a language model learns to answer with tools."""
