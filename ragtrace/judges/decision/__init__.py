"""Judge that asks a decision model, which answers yes-or-no questions with probabilities instead of text."""
