"""The look-up service: one Redis round trip, one short decode, and an answer in time.

``app`` (HTTP) → ``service`` (one request, top to bottom) → ``store`` (Redis, cache), ``case`` (what may be used),
``ladder`` (what to try), ``decoder`` (threads), ``limits`` (what no rung may return). ``releases`` decides which
model answers.
"""
