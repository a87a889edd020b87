"""Who follows which chassis (`poller`), how one is followed (`following`), and what hears it (`heard`)."""
