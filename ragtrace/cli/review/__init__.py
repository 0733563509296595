"""Command `ragtrace review`, a local web page on which people label the calls of a history."""
