"""Which calls are judged, how a judge is asked, and the scores of one call."""
