"""``bench``: what the look-up service costs and keeps, measured from outside."""
