"""Contracts between the rooms: events, states, plan, releases, API, registry. Imports no other room."""
