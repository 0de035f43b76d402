"""The recipe, the loop, teacher and moving average, checkpoints."""
