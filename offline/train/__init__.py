"""Training of the generator: examples, losses, the loop."""
