"""The streaming room's verb: ``stream``."""

from __future__ import annotations

from schemas.cli import main, parser
from streaming.verbs import add_verbs

if __name__ == "__main__":
    top, verbs = parser("streaming", "The Flink job that keeps every user's window of the last events.")
    add_verbs(verbs)
    main(top)
