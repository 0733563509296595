"""Judges without a chat model: HHEM, a model that runs in this process, and any function that scores pairs of texts."""
