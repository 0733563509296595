"""From a finished call to its scores: admission, queue, worker, spooling and drain."""
