"""Flight data: attitude, height and velocity from MAVLink, DJI captions, CSV files and photo metadata."""
