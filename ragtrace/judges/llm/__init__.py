"""The LLM judge: prompts, requests and replies of a chat model."""
