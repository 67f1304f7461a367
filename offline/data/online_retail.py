"""UCI Online Retail: the invoices of a British gift shop, dirt included (Chen, CC BY 4.0)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from offline.data.source import EVENT_COLUMNS, Source, set_aside
from schemas.errors import DataError
from schemas.names import Kind

COLUMNS = ("InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "CustomerID")
PRODUCT = r"^[0-9]{5}[A-Z]{0,2}$"
"""A product's stock code; postage, manual entries, samples and bank charges have other codes."""


def read_online_retail(file: Path) -> Source:
    """``file`` is invoices.parquet. Lower-case codes are the same products as upper-case ones."""
    try:
        lines = pl.read_parquet(file, columns=list(COLUMNS)).with_row_index("row", offset=1)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"can't be read: {error}", where=str(file), mend="Give invoices.parquet of Online Retail with --file."
        ) from None
    code = pl.col("StockCode").str.strip_chars().str.to_uppercase()
    lines = lines.with_columns(code=code, title=pl.col("Description").str.strip_chars())
    named = lines.filter((pl.col("title") != "") & pl.col("code").str.contains(PRODUCT))
    titles = named.group_by("code").agg(pl.col("title").mode().sort().first())
    rules = [
        (pl.col("InvoiceNo").str.starts_with("C"), "a cancellation", "InvoiceNo"),
        (pl.col("CustomerID").is_null(), "no customer", "InvoiceNo"),
        (~pl.col("code").str.contains(PRODUCT), "not a product's stock code", "StockCode"),
        (pl.col("Quantity") <= 0, "no quantity", "Quantity"),
        (~pl.col("code").is_in(titles["code"].implode()), "a product without any description", "StockCode"),
    ]
    good, rejected = set_aside(lines, file.name, rules)
    events = good.select(
        event_id=pl.col("InvoiceNo") + "-" + pl.col("code"),
        user_id=pl.col("CustomerID").cast(pl.String),
        item_id=pl.col("code"),
        kind=pl.lit(str(Kind.PURCHASE)),
        at=pl.col("InvoiceDate").dt.epoch("ms"),
        session=pl.col("InvoiceNo"),
    ).select(EVENT_COLUMNS)
    catalogue = titles.select(
        item_id="code",
        title=pl.col("title").str.to_titlecase(),
        text=pl.col("title").str.to_lowercase(),
        category=pl.lit("gifts"),
        brand=pl.lit(""),
    )
    told = pl.read_parquet(file, columns=["CustomerID", "Country"]).drop_nulls()
    country = told.unique("CustomerID", keep="first", maintain_order=True)
    profiles = country.select(user_id=pl.col("CustomerID").cast(pl.String), bucket="Country")
    return Source("online-retail", catalogue, events, profiles, rejected)
