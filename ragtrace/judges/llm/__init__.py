"""LLM judge: sends prompts to a chat model and reads labels from the model's replies."""
