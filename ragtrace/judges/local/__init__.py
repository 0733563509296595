"""Judges without a chat model: HHEM, which runs in this process, and any function that scores pairs of texts."""
