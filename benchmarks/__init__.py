"""How fast trainproof is, as ratios against named libraries in the same run on the same files."""
