"""Training: recipes, the training loop, teacher and moving average, checkpoints."""
