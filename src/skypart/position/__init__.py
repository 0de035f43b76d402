"""From ranked views to a position: vote, refinement, confidence, track."""
