"""The build: stages from a data set to a promoted release, each skipped when its inputs have not changed."""
