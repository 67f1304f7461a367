"""``python -m online serve | ask | explain``."""

from __future__ import annotations

from pathlib import Path

from schemas import cli


def main() -> None:
    """Parse and run a verb."""
    # Each verb imports what it needs: `explain` starts no server.
    from online.ask import ask  # noqa: PLC0415
    from online.picture import explain  # noqa: PLC0415

    top, verbs = cli.parser("online", "The look-up service.")
    start = cli.verb(verbs, "serve", _serve, "start the look-up service", "serve --port 8700")
    start.add_argument("--host", default="127.0.0.1", help="address to listen on; others than the loopback need a key")
    start.add_argument("--port", type=int, default=0, help="0 takes a free one")
    start.add_argument("--redis", metavar="URL", help="default: $BEFOREHAND_REDIS")
    start.add_argument("--ready-file", type=Path, metavar="FILE", help="written with the address when it is ready")

    show = cli.verb(verbs, "explain", explain, "show why an answer came out as it did", "explain 1234")
    show.add_argument("user", help="user id")
    show.add_argument("--url", help="of the service; default: $BEFOREHAND_ONLINE")
    show.add_argument("-k", type=int, default=10, help="items of each rung")

    send = cli.verb(verbs, "ask", ask, "ask for items, or measure over many users", "ask --user 1234 -k 10")
    who = send.add_mutually_exclusive_group(required=True)
    who.add_argument("--user", help="one user's items")
    who.add_argument("--targets", type=Path, metavar="FILE", help="measure: JSON lines with user_id and items")
    send.add_argument("--prompts", type=Path, metavar="FILE", help="JSON lines from `beforehand edge prompts`")
    send.add_argument("--limit", type=int, help="the first users of --targets only")
    send.add_argument("--url", help="of the service; default: $BEFOREHAND_ONLINE")
    send.add_argument("-k", type=int, default=50, help="items asked for")
    send.add_argument("--budget-ms", type=float, help="of each request; default: the plan's")
    send.add_argument("--concurrency", type=int, default=2, help="requests at a time")
    send.add_argument("--warm", type=int, default=20, help="requests sent first and not counted")
    send.add_argument("--whole", action="store_true", help="also time requests done all live, nothing beforehand")
    cli.main(top)


def _serve(args: object) -> cli.Result:
    from online.server import serve  # noqa: PLC0415

    return serve(args)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
