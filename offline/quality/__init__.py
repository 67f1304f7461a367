"""How good the generator is beside other methods, by the public protocols: ``./beforehand bench quality``."""
