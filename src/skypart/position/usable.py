"""Photos in which nothing can be seen."""

import cv2
import numpy as np

from skypart.images.decode import RgbImage


def unusable(image: RgbImage) -> str:
    """Why nothing can be seen in a photo; empty if something can."""
    small = cv2.resize(image, (112, 112), interpolation=cv2.INTER_AREA)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    level = float(grey.mean())
    if float(grey.std()) < 4.0:
        shade = "black" if level < 40 else "white" if level > 215 else "of one colour"
        return f"the photo is almost {shade}; nothing can be seen in it"
    if float(cv2.Laplacian(grey, cv2.CV_32F).std()) < 3.0:  # thick fog leaves 7, sky with its noise 2
        return "the photo is blurred or shows sky only; no ground can be made out in it"
    return ""
