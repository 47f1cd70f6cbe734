"""Engine `vllm`: a vLLM server, started and supervised here or given by URL."""
