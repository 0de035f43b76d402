"""From ranked views to positions and tracks: vote, patch matching, confidence, filter."""
