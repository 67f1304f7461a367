"""The operator of every task: run one verb, log what it says, return the JSON it ends with."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Any

import msgspec
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from dags.command import arguments, by_hand, environment, for_day, launcher, news, root
from schemas.errors import BeforehandError, DataError, PlanError, ReleaseError

if TYPE_CHECKING:
    from airflow.sdk import Context

REFUSALS = {PlanError.exit_code, DataError.exit_code, ReleaseError.exit_code}
"""Exit codes that a second try cannot mend: the input must change first."""
STOP_GRACE_S = 10.0


class VerbOperator(BaseOperator):
    """``./beforehand`` with one step, in the environment of that step's tier.

    Progress goes to the task's log line by line; the result, one JSON object, becomes the XCom ``return_value``.
    A verb that refuses its input fails at once, anything else is tried again.
    A run that an asset started takes the data set, the release and the like from that asset's event.

    Args:
        step: see ``dags.command.arguments``.
        skip_unless: key of the result; when it is false the task is skipped, and its assets are not new.
        day: of a backfill, YYYYMMDD.
    """

    template_fields = ("day",)

    def __init__(self, *, step: str, skip_unless: str = "", day: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.skip_unless = skip_unless
        self.day = day
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Raises AirflowFailException for a refusal, AirflowException for what may pass."""
        params = {**context["params"], **_carried(context)}  # pyright: ignore[reportTypedDictNotRequiredAccess]
        if self.day:
            params = for_day(params, self.day)
        try:
            words = arguments(self.step, params)
        except BeforehandError as error:
            raise AirflowFailException(str(error)) from None
        self.log.info("%s", by_hand(words))
        with tempfile.TemporaryFile() as result:
            code = self._run([str(launcher()), *words], result)
            result.seek(0)
            said = _last_object(result.read())
        if code != 0:
            failure = AirflowFailException if code in REFUSALS else AirflowException
            raise failure(f"{by_hand(words)} ended with exit code {code}{_reason(said)}")
        if self.skip_unless and not said.get(self.skip_unless):
            raise AirflowSkipException(f"not {self.skip_unless}: {said}")
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = news(self.step, params, said)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        return said

    def _run(self, command: list[str], result: IO[bytes]) -> int:
        """Run to the end. Its own session, so that a stop reaches what it started too."""
        self._process = subprocess.Popen(
            command,
            cwd=root(),
            env=environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stderr is not None
        try:
            for line in self._process.stderr:
                self.log.info("%s", line.decode(errors="backslashreplace").rstrip())
            return self._process.wait()
        except BaseException:  # a time limit or Ctrl-C: neither reaches another session by itself
            self.on_kill()
            raise

    def on_kill(self) -> None:
        """Stop the verb: politely, then not. A stage stopped at any point leaves its old result or its new one."""
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _carried(context: Context) -> dict[str, Any]:
    """What the newest of the asset events that started this run brought; nothing for a run by hand or by time."""
    events = [event for found in (context.get("triggering_asset_events") or {}).values() for event in found]
    newest = max(events, key=lambda event: event.timestamp, default=None)
    return dict(newest.extra or {}) if newest else {}


def _last_object(output: bytes) -> dict[str, Any]:
    """The JSON object on the last line; empty when there is none (the stage died before it could say)."""
    lines = output.strip().splitlines()
    try:
        return msgspec.json.decode(lines[-1], type=dict[str, Any]) if lines else {}
    except msgspec.DecodeError:
        return {}


def _reason(said: dict[str, Any]) -> str:
    """A verb's ``{"error", "where", "mend"}`` as one sentence."""
    if "error" not in said:
        return "; its last words are in the lines above"
    return f": {BeforehandError(said['error'], where=said.get('where', ''), mend=said.get('mend', ''))}"
