"""From ranked views to positions and tracks: vote, match, confidence, filter."""
