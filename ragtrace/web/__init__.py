"""Commands `ragtrace open` and `ragtrace review`: local web pages on a history, where calls are labelled, too."""
