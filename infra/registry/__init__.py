"""The registry's migrations (Alembic) and the verb that runs them, in the environment that has Alembic."""
