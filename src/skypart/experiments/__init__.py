"""Comparisons end to end: a plan of trainings and evaluations, their tables, figures and statistics."""
