"""What must come from the system: a JDK and Maven, for Kafka and Flink.

They are looked for first; as root on Debian or Ubuntu they are installed; else the exact command is named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.errors import LauncherError
from infra.stamps import say

OLDEST_JAVA = 17


@dataclass(frozen=True)
class Java:
    """A JDK that was found: its home, its `java`, its feature release."""

    home: Path
    program: Path
    version: int

    @property
    def compiles(self) -> bool:
        """A JRE runs Kafka and Flink, but Maven needs the compiler too."""
        return (self.home / "bin" / "javac").exists()


def find_java() -> Java | None:
    """JAVA_HOME first, then PATH; None when neither holds Java 17 or newer."""
    homes = [os.environ.get("JAVA_HOME")]
    on_path = shutil.which("java")
    if on_path:
        homes.append(str(Path(on_path).resolve().parent.parent))
    for home in homes:
        program = Path(home, "bin", "java") if home else None
        if program and program.exists():
            version = _java_version(program)
            if version >= OLDEST_JAVA:
                return Java(home=program.parent.parent, program=program, version=version)
    return None


@cache
def _java_version(program: Path) -> int:
    """From the JDK's `release` file where there is one: starting a JVM to ask costs 100 ms."""
    release = program.parent.parent / "release"
    if release.is_file():
        text = release.read_text()
    else:
        text = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'(?:JAVA_VERSION="|version ")(\d+)', text)
    return int(found.group(1)) if found else 0


def java() -> Java:
    """A Java to run with, installed if need be and possible."""
    return find_java() or _install_java(f"Java {OLDEST_JAVA} or newer")


def _install_java(why: str) -> Java:
    apt_install(["openjdk-17-jdk-headless"], ["default-jdk-headless"], why=why)
    found = find_java()
    if found is None:
        raise LauncherError(f"no Java {OLDEST_JAVA} or newer was found", "set JAVA_HOME to a JDK that is new enough")
    return found


def maven() -> Path:
    """Maven, installed if need be and possible."""
    if not java().compiles:
        _install_java("a Java compiler")
    program = shutil.which("mvn")
    if program is None:
        apt_install(["maven"], why="Maven")
        program = shutil.which("mvn")
    if program is None:
        raise LauncherError("no Maven was found", "install Maven 3.8 or newer and put `mvn` on PATH")
    return Path(program)


def apt_install(packages: list[str], fallback: list[str] | None = None, *, why: str) -> None:
    """Install Debian packages as root; anybody else is told the command."""
    command = f"apt-get update && apt-get install -y {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sudo = "sudo sh -c " if shutil.which("apt-get") else ""
        mend = f"{sudo}'{command}'" if sudo else f"install it with your system's packages (Debian: {command})"
        raise LauncherError(f"{why} is needed and is not installed", mend)
    say(f"installing {why} ({' '.join(packages)})")
    _apt(["update", "-qq"])
    if _apt(["install", "-y", "-qq", "--no-install-recommends", *packages]) == 0:
        return
    if fallback and _apt(["install", "-y", "-qq", "--no-install-recommends", *fallback]) == 0:
        return
    raise LauncherError(f"apt-get could not install {why}", f"run it by hand and read what it says: {command}")


def _apt(args: list[str]) -> int:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", *args], check=False, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    return done.returncode
