"""What all figures share: their style, and writing them to files."""
