"""Reading and changing images: decoding, camera metadata, preprocessing, augmentation, weather. No model code."""
