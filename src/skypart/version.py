"""The package version, in a module without imports so that any other module can use it."""

__version__ = "0.3.0"
