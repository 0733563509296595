"""Judges that need no chat model: the classifier HHEM in this process, and any function that scores pairs of texts."""
