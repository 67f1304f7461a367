"""The Flink job that keeps every user's window: SQL, two small Java functions, its deployment."""
