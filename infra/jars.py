"""The jars that Maven fetches or builds: Kafka's broker, and the Flink jobs' connector and aggregate.

`ensure(layout, name)` returns a folder of jars and does nothing while the sources are unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra import system
from infra.errors import LauncherError
from infra.paths import Layout
from infra.stamps import digest, locked, read_stamp, say, write_stamp


@dataclass(frozen=True)
class Jars:
    """A Maven project of this repository and where its goals leave the jars."""

    project: str
    goals: tuple[str, ...]
    made_in: str


JARS = {
    "kafka": Jars(
        project="infra/kafka",
        goals=("dependency:copy-dependencies", "-DincludeScope=runtime"),
        made_in="target/dependency",
    ),
    "flink": Jars(project="streaming/java", goals=("package",), made_in="target/jars"),
}


def sources(layout: Layout, name: str) -> Iterator[Path]:
    """The files that the jars are made from."""
    project = layout.root / JARS[name].project
    yield project / "pom.xml"
    yield from sorted(path for path in (project / "src").rglob("*") if path.is_file())


def stamp(layout: Layout, name: str) -> str:
    parts: list[str | bytes] = []
    for path in sources(layout, name):
        parts += [str(path.relative_to(layout.root)), path.read_bytes()]
    return digest(parts)


def state(layout: Layout, name: str) -> str:
    """`present`, `out of date`, `absent`, or `no sources` in a checkout without the project."""
    if not (layout.root / JARS[name].project / "pom.xml").exists():
        return "no sources"
    stamped = read_stamp(layout.jars / name / ".beforehand-stamp")
    if stamped is None:
        return "absent"
    return "present" if stamped == stamp(layout, name) else "out of date"


def ensure(layout: Layout, name: str) -> Path:
    """The folder with the jars, made anew when their sources changed."""
    if state(layout, name) != "present":
        with locked(layout.made / "locks" / f"jars-{name}", f"building the {name} jars"):
            if state(layout, name) != "present":
                _build(layout, name)
    return layout.jars / name


def _build(layout: Layout, name: str) -> None:
    jars = JARS[name]
    project = layout.root / jars.project
    if not (project / "pom.xml").exists():
        raise LauncherError(f"{jars.project}/pom.xml is missing", "check the repository out completely")
    wanted = stamp(layout, name)
    say(f"building the {name} jars with Maven (the first time fetches them)")
    made = project / jars.made_in
    # Jars of an earlier version would be picked up beside the new ones.
    shutil.rmtree(made, ignore_errors=True)
    command = [str(system.maven()), "-q", "-B", "-f", str(project / "pom.xml"), *jars.goals]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0 or not list(made.glob("*.jar")):
        print(done.stdout, file=sys.stderr)
        raise LauncherError(
            f"Maven could not make the {name} jars (exit {done.returncode})",
            f"read what it says above, or run it yourself: {' '.join(command)}",
        )
    _publish(made, layout.jars / name)
    write_stamp(layout.jars / name / ".beforehand-stamp", wanted)


def _publish(made: Path, folder: Path) -> None:
    """Replace the folder's jars; a running JVM keeps the old files open."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for jar in sorted(made.glob("*.jar")):
        shutil.copy2(jar, folder / jar.name)
