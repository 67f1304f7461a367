"""The first task of a backfill: which days."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from dags.days import choose_days
from schemas.errors import DataError

if TYPE_CHECKING:
    from airflow.sdk import Context

CHOOSE = "choose"


class DaysOperator(BaseOperator):
    """Returns the days to build, newest first; says which of the range it leaves out."""

    def execute(self, context: Context) -> list[str]:
        """Raises AirflowFailException for a range that can't be used."""
        params = context["params"]  # pyright: ignore[reportTypedDictNotRequiredAccess]
        try:
            days = choose_days(params["begin"], params["end"], params["most"], datetime.now(UTC))
        except DataError as error:
            raise AirflowFailException(str(error)) from None
        self.log.warning("building %s, one at a time, newest first", ", ".join(days.chosen))
        if days.left_out:
            self.log.warning(
                "left out: %d older days (%s … %s); raise `most` to build them too",
                len(days.left_out),
                days.left_out[-1],
                days.left_out[0],
            )
        return days.chosen
