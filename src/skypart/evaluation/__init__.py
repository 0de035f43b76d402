"""Retrieval metrics, SDM, benchmark evaluation, the weather benchmark, tables and figures."""

from skypart.evaluation.distance import match_errors, meter_accuracy, sdm
from skypart.evaluation.metrics import retrieval_metrics
from skypart.evaluation.ranking import rank_positives, top_matches

__all__ = ["match_errors", "meter_accuracy", "rank_positives", "retrieval_metrics", "sdm", "top_matches"]
