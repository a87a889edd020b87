"""The audit log: who changed or tried to change what, from where; append-only and chained by hashes.

services: how entries come to be. chain: the pure recipe of the chain. verification: whether it is whole.
"""
