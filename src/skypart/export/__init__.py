"""Export: a deployed model as ONNX or OpenVINO, quantised if asked for, with proof that it gives the same results."""

from skypart.export.run import ExportOptions, export_model

__all__ = ["ExportOptions", "export_model"]
