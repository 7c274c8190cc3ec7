"""`trainproof watch`: follow growing logs from outside of the process that writes them."""
