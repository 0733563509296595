"""Recording: runs the user's decorated functions and records them as the steps of a RAG call."""
