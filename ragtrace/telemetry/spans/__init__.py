"""Fast spans for ragtrace's and the user's tracer provider, and the hold of finished root spans."""
