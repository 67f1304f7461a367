"""How the room's Beam pipelines run: by the ordinary pipeline options."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

OPTIONS = "BEFOREHAND_BEAM_OPTIONS"
# Prism, the default runner of the Python SDK, fetches its binary from the internet.
DEFAULT = ("--runner=FnApiRunner",)
logging.getLogger("apache_beam").setLevel(logging.ERROR)
logging.getLogger().setLevel(logging.ERROR)


def use(runner: str | None, options: Sequence[str] = ()) -> None:
    """Run this process's pipelines by ``runner`` (any that Beam knows) with its ``options``, each ``--name=value``."""
    if runner or options:
        os.environ[OPTIONS] = shlex.join([f"--runner={runner}" if runner else DEFAULT[0], *options])


def pipeline() -> beam.Pipeline:
    """A pipeline with the options in ``$BEFOREHAND_BEAM_OPTIONS``; by default in this process."""
    return beam.Pipeline(options=PipelineOptions(shlex.split(os.environ.get(OPTIONS, "")) or list(DEFAULT)))
