"""The agent of a host: reports the host's devices to the site, and drains devices before they are detached.

It imports neither the site nor the simulator; a simulated host is the same code with another root folder.
"""

VERSION = "1"
