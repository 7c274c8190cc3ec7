"""Checkpoints, opened without unpickling anything: read, scanned, compared, judged."""
