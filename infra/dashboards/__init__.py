"""Prometheus rules and Grafana dashboards."""
