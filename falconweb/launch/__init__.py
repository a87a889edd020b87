"""`make up`: all processes of one site on one machine, started in order and ended together."""
