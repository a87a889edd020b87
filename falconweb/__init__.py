"""The site: wires the rooms together and decides nothing."""

__version__ = "0.1.0"
