"""Engine `openai`: any server with OpenAI's completion API, by URL."""
