"""``./beforehand bench stream``: the window job and the worker under load, on services of their own."""
