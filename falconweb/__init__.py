"""The site: wires the features together, without logic of its own."""

__version__ = "0.1.0"
