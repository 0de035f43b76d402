"""The index over HTTP: an API and a page."""
