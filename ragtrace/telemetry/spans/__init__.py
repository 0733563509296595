"""Creation of spans at low cost on the request thread, and delayed export of root spans until their scores are
known.
"""
