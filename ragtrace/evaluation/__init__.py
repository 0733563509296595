"""Evaluation of calls: sampling of the calls to judge, the client of a judge, and the scoring of one call."""
