"""The pollers: which worker polls which chassis (`claims`, `poller`), and how one chassis is polled."""
