"""An evaluation from its request to its end: admission, preparation, attempts, samples, recording."""
