"""``python -m online serve | ask | explain | bench``."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from schemas import cli


def main() -> None:
    """Parse and run a verb."""
    top, verbs = cli.parser("online", "The look-up service.")
    _add_serve(verbs)
    _add_explain(verbs)
    _add_ask(verbs)
    _add_bench(verbs)
    _add_numbers(verbs)
    cli.main(top)


def _add_serve(verbs: object) -> None:
    serve = cli.verb(verbs, "serve", _serve, "start the look-up service", "serve --port 8700")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; others than the loopback need a key")
    serve.add_argument("--port", type=int, default=0, help="0 takes a free one")
    serve.add_argument("--redis", metavar="URL", help="default: $BEFOREHAND_REDIS")
    serve.add_argument("--shop", type=Path, metavar="FOLDER", help="also serve the demo's shop, at /shop/")
    serve.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve over TLS with this certificate (PEM)")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")
    serve.add_argument("--client-ca", type=Path, metavar="FILE", help="only clients with a certificate signed by these")
    serve.add_argument("--ready-file", type=Path, metavar="FILE", help="written with the address when it is ready")


def _add_explain(verbs: object) -> None:
    explain = cli.verb(verbs, "explain", _explain, "show why an answer came out as it did", "explain 1234")
    explain.add_argument("user", help="user id")
    explain.add_argument("--url", help="of the service; default: $BEFOREHAND_ONLINE")
    explain.add_argument("-k", type=int, default=10, help="items of each rung")


def _add_ask(verbs: object) -> None:
    ask = cli.verb(verbs, "ask", _ask, "ask for items, or measure over many users", "ask --user 1234 -k 10")
    who = ask.add_mutually_exclusive_group(required=True)
    who.add_argument("--user", help="one user's items")
    who.add_argument("--targets", type=Path, metavar="FILE", help="measure: JSON lines with user_id and items")
    ask.add_argument("--prompts", type=Path, metavar="FILE", help="JSON lines from `beforehand edge prompts`")
    ask.add_argument("--limit", type=int, metavar="N", help="the first N users of --targets only")
    ask.add_argument("--url", help="of the service; default: $BEFOREHAND_ONLINE")
    ask.add_argument("-k", type=int, default=50, help="items asked for")
    ask.add_argument("--budget-ms", type=float, metavar="MS", help="of each request; default: the plan's")
    ask.add_argument("--concurrency", type=int, default=2, metavar="N", help="requests at a time")
    ask.add_argument("--warm", type=int, default=20, metavar="N", help="requests sent first and not counted")
    ask.add_argument("--whole", action="store_true", help="also time requests done all live, nothing beforehand")


def _add_bench(verbs: object) -> None:
    bench = cli.verb(
        verbs, "bench", _bench, "measure cost, latency and overload of the service", "bench online --seconds 10"
    )
    bench.add_argument("what", nargs="?", choices=("online",), default="online", help="the look-up service")
    bench.add_argument("--release", type=Path, metavar="FOLDER", help="whose decoder runs; default: the newest one")
    bench.add_argument("--items", type=int, default=1_000_000, metavar="N", help="items of the made-up catalogue")
    bench.add_argument("--users", type=int, default=20_000, metavar="N", help="users with a state")
    bench.add_argument("-k", type=int, default=50, help="items asked for")
    bench.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each phase of the load")
    bench.add_argument("--redis", metavar="URL", help="filled with users named bench-N; default: one of its own")
    bench.add_argument(
        "--rivals", action="store_true", help="beside it Transformers and Feast, in an environment of their own"
    )
    bench.add_argument(
        "--core-hour-price", type=float, default=0.04, metavar="P", help="for the cost of a million codes"
    )
    bench.add_argument(
        "--instances",
        type=int,
        default=1,
        metavar="N",
        help="processes that share the load, without --faults (default: 1)",
    )
    bench.add_argument("--faults", action="store_true", help="instead: one fault after the other under load")
    bench.add_argument("--requests", type=int, default=100_000, metavar="N", help="with --faults: so many at least")


def _add_numbers(verbs: object) -> None:
    about = "this tier's numbers for given cases, to be compared with the other tiers'"
    numbers = cli.verb(verbs, "numbers", _numbers, about, "parity --users 50 (it calls `python -m online numbers`)")
    numbers.add_argument("--cases", type=Path, required=True, help="JSON lines (schemas.cases)")
    numbers.add_argument("--release", required=True, metavar="ID", help="of the release")
    numbers.add_argument("--out", type=Path, required=True, help="JSON to write: rows, items and scores by case")


# Each verb imports what it needs when it runs: --help and `explain` load no model runtime.
def _serve(args: argparse.Namespace) -> cli.Result:
    return import_module("online.server").serve(args)


def _explain(args: argparse.Namespace) -> cli.Result:
    return import_module("online.picture").explain(args)


def _ask(args: argparse.Namespace) -> cli.Result:
    return import_module("online.ask").ask(args)


def _bench(args: argparse.Namespace) -> cli.Result:
    return import_module("online.bench.verb").bench(args)


def _numbers(args: argparse.Namespace) -> cli.Result:
    return import_module("online.numbers").numbers(args)


if __name__ == "__main__":
    main()
