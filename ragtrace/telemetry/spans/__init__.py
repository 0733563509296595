"""Cheap creation of spans on the request thread, and delayed export of root spans until their scores are known."""
