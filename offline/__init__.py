"""Offline tier: data, semantic index, training, evaluation, lists and releases. The only room with torch."""
