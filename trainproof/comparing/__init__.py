"""Is a run worse than the ones that are trusted: axes, matching, levels with their noise, and the baseline store."""
