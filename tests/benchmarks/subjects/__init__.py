"""The applications that the overhead benchmark compares: the same three functions, watched in different ways."""
