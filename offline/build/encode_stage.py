"""Stage ``encode``: a vector for every distinct text of the catalogue. Only texts that are new are encoded."""

from __future__ import annotations

import hashlib
import statistics
import time
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from apache_beam.io.parquetio import WriteToParquet
from apache_beam.transforms.util import BatchElements

from offline.build.pipelines import pipeline
from offline.build.stage import Build, Result, read_record
from offline.build.text_encoder import BATCH, Encode, EncoderFiles, encoder_files, load
from schemas.errors import DataError

ALONE = 21
"""Texts timed one by one."""
SCHEMA = pa.schema([("hash", pa.string()), ("vector", pa.list_(pa.float32()))])


def encode(build: Build, folder: Path) -> Result:
    """Writes ``texts.parquet`` (hash, vector) and ``text.npy`` float32 [items, width], in the catalogue's order.

    Raises:
        DataError: the catalogue shrank by more than the plan's ``index.max_shrink``; ``build --force`` overrides.
    """
    files = encoder_files(build.plan.index.encoder, build.threads)
    texts = pl.read_parquet(build.data / "catalogue.parquet")["text"].to_list()
    refuse_shrunk(build, len(texts))
    hashes = [text_hash(text, files) for text in texts]
    known = _known(build)
    new = {digest: text for digest, text in zip(hashes, texts, strict=True) if digest not in known}
    if new:
        known |= encode_texts(new, files, folder)
    wanted = sorted(set(hashes))
    pl.DataFrame({"hash": wanted, "vector": [known[digest] for digest in wanted]}).write_parquet(
        folder / "texts.parquet"
    )
    np.save(folder / "text.npy", np.stack([known[digest] for digest in hashes]).astype(np.float32))
    return {
        "encoded": len(new),
        "items": len(texts),
        "texts": len(wanted),
        "alone_ms": alone_ms(texts, files),
        "says": f"{len(new):,} of {len(wanted):,} texts were new",
    }


def refuse_shrunk(build: Build, num_items: int) -> None:
    """Half a catalogue is more often a broken feed than a shop that shrank."""
    record, share = read_record(build, "encode"), build.plan.index.max_shrink
    before = record.result.get("items", 0) if record else 0
    if num_items < (1 - share) * before and not build.force:
        raise DataError(
            f"the catalogue shrank by more than {share:.0%}, from {before:,} items",
            where=str(build.data / "catalogue.parquet"),
            value=num_items,
            mend="See what the feed lacks. If it is meant: `build --force`, or raise index.max_shrink.",
        )


def alone_ms(texts: list[str], files: EncoderFiles) -> float:
    """Median milliseconds of one text by itself, one thread: what a request would pay that encoded it live."""
    encoder = load(msgspec.structs.replace(files, threads=1))
    took = []
    for text in texts[:: max(1, len(texts) // ALONE)][:ALONE]:
        begun = time.perf_counter()
        encoder([text])
        took.append(time.perf_counter() - begun)
    return round(statistics.median(took) * 1000, 3)


def text_hash(text: str, files: EncoderFiles) -> str:
    """Of the text and the model: either changes, and the text is encoded again."""
    return hashlib.sha256(f"{files.model_sha256}\n{text}".encode()).hexdigest()[:32]


def encode_texts(texts: dict[str, str], files: EncoderFiles, folder: Path) -> dict[str, np.ndarray]:
    """The vectors by the keys of ``texts``, from a Beam pipeline that writes ``new-*.parquet`` into ``folder``.

    Texts of like length go together.
    """
    rows = sorted(texts.items(), key=lambda row: (len(row[1]), row[0]))
    with pipeline() as start:
        _ = (
            start
            | "texts" >> beam.Create(rows, reshuffle=False)
            | "batch" >> BatchElements(min_batch_size=BATCH, max_batch_size=BATCH)
            | "encode" >> beam.ParDo(Encode(files))
            | "write" >> WriteToParquet(str(folder / "new"), SCHEMA, file_name_suffix=".parquet")
        )
    return _read(folder / "new")


def _known(build: Build) -> dict[str, np.ndarray]:
    """What the last run encoded."""
    record = read_record(build, "encode")
    return _read(build.work / "encode" / record.hash / "texts") if record else {}


def _read(prefix: Path) -> dict[str, np.ndarray]:
    frames = [pl.read_parquet(path) for path in sorted(prefix.parent.glob(f"{prefix.name}*.parquet"))]
    return {
        digest: np.asarray(vector, np.float32)
        for frame in frames
        for digest, vector in frame.select("hash", "vector").iter_rows()
    }
