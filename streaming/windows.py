"""Submits the windows job to a cluster. PyFlink compiles the SQL here; no Python runs in the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.util.exceptions import JavaException
from pyflink.util.java_utils import add_jars_to_context_class_loader

from schemas.errors import BeforehandError, StoreError
from schemas.locations import ROOT, state_dir
from streaming import sql
from streaming.flink import root_cause
from streaming.topics import ensure_topics

JARS = ("beforehand-flink-*.jar", "flink-sql-connector-kafka-*.jar")


def find_jars(folder: Path | None = None) -> list[Path]:
    """The job's two jars, in ``$BEFOREHAND_JARS`` or where the launcher puts them.

    Raises:
        BeforehandError: when one is missing, or there in two versions.
    """
    folder = folder or Path(os.environ.get("BEFOREHAND_JARS", ROOT / ".beforehand" / "jars" / "flink"))
    found: list[Path] = []
    for pattern in JARS:
        jars = sorted(folder.glob(pattern))
        if len(jars) != 1:
            raise BeforehandError(
                f"{len(jars)} jars are called {pattern}; the job needs one",
                where=f"BEFOREHAND_JARS={folder}",
                mend="Run `mvn -f streaming/java/pom.xml package` and set BEFOREHAND_JARS=streaming/java/target/jars.",
            )
        found.append(jars[0].absolute())
    return found


def start_java(jars: list[Path]) -> Any:
    """PyFlink's Java process with the jars loaded; returns its ``jvm``."""
    log = state_dir() / "run" / "stream"
    log.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("FLINK_LOG_DIR", str(log))  # else it writes into the installed package
    add_jars_to_context_class_loader([jar.as_uri() for jar in jars])
    return get_gateway().jvm


def make_topics(jvm: Any, kafka: str) -> list[str]:
    """See ``ensure_topics``. Raises ``StoreError`` when the broker does not answer or refuses."""
    with java_errors(f"Kafka at {kafka}", "See `./beforehand status`, or name the broker with --kafka."):
        return ensure_topics(jvm, kafka)


def submit(settings: sql.JobSettings, flink_url: str, jars: list[Path], resume_from: str | None) -> str:
    """Hand the job to the cluster; returns its id. It need not run yet when this returns.

    Raises ``StoreError`` with Flink's own words when it is refused.
    """
    chosen = {**sql.configuration(settings), **remote(flink_url, jars)}
    if resume_from:
        chosen["execution.state-recovery.path"] = resume_from
    configuration = Configuration()
    for key, value in chosen.items():
        configuration.set_string(key, value)
    with java_errors(f"Flink at {flink_url}", "The client's log is in $BEFOREHAND_STATE/run/stream."):
        client = _statements(configuration, settings).execute().get_job_client()
        assert client is not None, "an INSERT always makes a job"
        return str(client.get_job_id())


def remote(flink_url: str, jars: list[Path]) -> dict[str, str]:
    """Flink's settings that send a job with its jars to a cluster."""
    address = urlsplit(flink_url)
    return {
        "execution.target": "remote",
        "execution.attached": "false",
        "rest.address": address.hostname or "",
        "rest.port": str(address.port or 8081),
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
    }


def _statements(configuration: Configuration, settings: sql.JobSettings) -> Any:
    mode = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    environment = TableEnvironment.create(mode)
    for statement in [*sql.functions(), *sql.tables(settings), *sql.views(settings)]:
        environment.execute_sql(statement)
    statements = environment.create_statement_set()
    for statement in sql.inserts(settings):
        statements.add_insert_sql(statement)
    return statements


@contextmanager
def java_errors(where: str, mend: str) -> Iterator[None]:
    """Turns a Java exception into a ``StoreError`` with its innermost cause."""
    try:
        yield
    except Py4JJavaError as error:
        raise StoreError(root_cause(str(error).partition("\n: ")[2]), where=where, mend=mend) from None
    except JavaException as error:
        raise StoreError(root_cause(str(error)), where=where, mend=mend) from None
    except Py4JError as error:
        raise StoreError(f"the Java process is gone: {error}", where=where, mend=mend) from None
