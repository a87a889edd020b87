"""The agent of a host: tells the site what the host sees, and takes devices from it before they are detached.

It knows neither the site nor the simulator; a simulated host is the same code over another root folder.
"""

VERSION = "1"
