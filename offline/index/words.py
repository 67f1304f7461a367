"""Items' words as a matrix: what their texts say, beside their brand and category."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

WORD = re.compile(r"[^\W_]+")
UNSPACED = re.compile(r"[぀-ヿ㐀-鿿]{2,}")
"""Japanese and Chinese are written without spaces: pairs of signs stand for words."""


def word_matrix(texts: Sequence[str], labels: Sequence[Iterable[str]]) -> Any:
    """TF-IDF, float32 [N, V] with rows of length one; a row without a word is zero.

    A word counts once per item and weighs log((N + 1) / (items that have it + 1)). ``labels`` (a brand, a category)
    are words of their own, whatever they contain.
    """
    tokens = [[*words(text), *(f"={label}" for label in own)] for text, own in zip(texts, labels, strict=True)]
    if not any(tokens):
        return sp.csr_matrix((len(texts), 1), dtype=np.float32)
    counter: Any = CountVectorizer
    counts = counter(analyzer=list, binary=True, dtype=np.float32).fit_transform(tokens)
    found = np.asarray(counts.sum(axis=0)).ravel()
    weighted = counts @ sp.diags(np.log((len(texts) + 1) / (found + 1)))
    norm: Any = normalize
    return norm(weighted).tocsr().astype(np.float32)


def words(text: str) -> list[str]:
    """Lower-case words of a text; pairs of signs where there are no spaces."""
    out = []
    for word in WORD.findall(text.lower()):
        if UNSPACED.fullmatch(word):
            out += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            out.append(word)
    return out
