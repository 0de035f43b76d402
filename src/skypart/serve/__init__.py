"""The HTTP server: a JSON API and a web page for one index."""
