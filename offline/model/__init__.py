"""The generator, cut where the latency tiers meet: intent encoder, prompt encoder, decoder."""
