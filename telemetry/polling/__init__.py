"""The pollers: the claims of workers on chassis (`claims`, `poller`), and the polling of one chassis."""
