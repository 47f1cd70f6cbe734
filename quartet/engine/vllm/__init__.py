"""The engine `vllm`: a vLLM server, started and watched here or given by URL."""
