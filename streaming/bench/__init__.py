"""What ``beforehand bench stream`` compares the windows job with. Nothing here runs in production."""
