"""The near-line room's verbs: ``worker``, ``replay``, ``forget``, ``catalogue`` and ``bench stream``."""

from __future__ import annotations

from nearline.bench.verb import add_bench
from nearline.catalogue_verb import add_catalogue
from nearline.forget_verb import add_forget
from nearline.numbers import add_numbers
from nearline.replay_verb import add_replay
from nearline.rows_verb import add_rows
from nearline.worker_verb import add_worker
from schemas.cli import main, parser

if __name__ == "__main__":
    top, verbs = parser("nearline", "The near-line tier: users' windows become intent states in Redis.")
    add_worker(verbs)
    add_replay(verbs)
    add_forget(verbs)
    add_catalogue(verbs)
    add_numbers(verbs)
    add_bench(verbs)
    add_rows(verbs)
    main(top)
