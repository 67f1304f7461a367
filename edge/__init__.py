"""On the device: local events in, prompt embedding out, in time. The Python code here defines the numbers."""
