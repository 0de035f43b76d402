"""The ground that a photo shows: its homography in metres around the fix."""

import numpy as np

from skypart.position.homography import Homography, to_metres
from skypart.position.matching import Refinement

MIN_DEPTH = 0.25
"""Pixels whose depth, relative to the photo's centre, is smaller than this are too near the horizon to be warped."""


def ground_homography(refined: Refinement) -> tuple[float, ...]:
    """The homography of `Fix.ground`, row by row."""
    matrix = to_metres(refined.footprint) @ refined.match.homography
    centre = matrix @ [0.5, 0.5, 1.0]
    shift = np.eye(3)
    shift[:2, 2] = -centre[:2] / centre[2]
    moved: Homography = shift @ matrix / centre[2]
    return tuple(float(value) for value in moved.ravel())
