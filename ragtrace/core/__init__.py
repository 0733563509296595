"""Data types, attribute names, settings, errors and call counts, which all other packages of ragtrace import."""
