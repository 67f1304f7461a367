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
from offline.build.text_encoder import BATCH, Encode, EncoderFiles, LoadedEncoder, minilm

ALONE = 21
"""Texts timed one by one."""
SCHEMA = pa.schema([("hash", pa.string()), ("vector", pa.list_(pa.float32()))])


def encode(build: Build, folder: Path) -> Result:
    """Writes ``texts.parquet`` (hash, vector) and ``text.npy`` float32 [items, width], in the catalogue's order."""
    files = minilm(build.threads)
    texts = pl.read_parquet(build.data / "catalogue.parquet")["text"].to_list()
    hashes = [text_hash(text, files) for text in texts]
    known = _known(build)
    new = {digest: text for digest, text in zip(hashes, texts, strict=True) if digest not in known}
    if new:
        encode_texts(new, files, folder)
        known |= _read(folder / "new")
    wanted = sorted(set(hashes))
    pl.DataFrame({"hash": wanted, "vector": [known[digest] for digest in wanted]}).write_parquet(
        folder / "texts.parquet"
    )
    np.save(folder / "text.npy", np.stack([known[digest] for digest in hashes]).astype(np.float32))
    return {
        "encoded": len(new),
        "texts": len(wanted),
        "alone_ms": alone_ms(texts, files),
        "says": f"{len(new):,} of {len(wanted):,} texts were new",
    }


def alone_ms(texts: list[str], files: EncoderFiles) -> float:
    """Median milliseconds of one text by itself, one thread: what a request would pay that encoded it live."""
    encoder = LoadedEncoder(msgspec.structs.replace(files, threads=1))
    took = []
    for text in texts[:: max(1, len(texts) // ALONE)][:ALONE]:
        begun = time.perf_counter()
        encoder([text])
        took.append(time.perf_counter() - begun)
    return round(statistics.median(took) * 1000, 3)


def text_hash(text: str, files: EncoderFiles) -> str:
    """Of the text and the model: either changes, and the text is encoded again."""
    return hashlib.sha256(f"{files.model_sha256}\n{text}".encode()).hexdigest()[:32]


def encode_texts(texts: dict[str, str], files: EncoderFiles, folder: Path) -> None:
    """The Beam pipeline; writes ``new-*.parquet`` into ``folder``. Texts of like length go together."""
    rows = sorted(texts.items(), key=lambda row: (len(row[1]), row[0]))
    with pipeline() as start:
        _ = (
            start
            | "texts" >> beam.Create(rows, reshuffle=False)
            | "batch" >> BatchElements(min_batch_size=BATCH, max_batch_size=BATCH)
            | "encode" >> beam.ParDo(Encode(files))
            | "write" >> WriteToParquet(str(folder / "new"), SCHEMA, file_name_suffix=".parquet")
        )


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
