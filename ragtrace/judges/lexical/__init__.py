"""The embedded judge, which compares words and needs no model."""
