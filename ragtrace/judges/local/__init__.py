"""Judges that run a model in this process: HHEM, and any scorer of pairs of texts."""
