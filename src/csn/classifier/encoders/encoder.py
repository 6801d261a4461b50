"""Encoders: packaged ones and the user's own, behind one interface that turns a list of inputs into vectors."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from csn.classifier.encoders.cache import DiskCache, MemoryCache, content_key
from csn.core.repeated import HeadOptions
from csn.engine.checkpoint import digest

Progress = Callable[[int, int], object]
Kind = Literal["text", "photos", "any"]
NAMED: tuple[str, ...] = ("text", "photos")


class Encoder:
    """A list of inputs -> (inputs, d) vectors, in batches. Equal inputs are encoded once.

    call: maps a batch (a list) to an array or tensor (batch, d).
    kind: the type of the inputs; "any" accepts all types.
    transform: applied to every input before `call`; the results are stacked.
    fingerprint: identifies the encoder in task files and in the cache. Without one, a description of `call` takes its
    place, and embeddings are kept only until the process ends.
    head: the options of csn's head for these vectors.
    """

    def __init__(
        self,
        call: Any,
        *,
        kind: Kind = "any",
        transform: Callable[[Any], Any] | None = None,
        fingerprint: str | None = None,
        head: HeadOptions | None = None,
    ) -> None:
        self.kind: Kind = kind
        self.call, self.transform, self.head = call, transform, head or HeadOptions()
        own = fingerprint or getattr(call, "fingerprint", None)
        self.fingerprint = own if isinstance(own, str) else _described(call, transform)
        self.cache = DiskCache(own) if isinstance(own, str) else MemoryCache()

    def __call__(
        self, inputs: Sequence[Any], batch_size: int = 64, cache: bool = True, progress: Progress | None = None
    ) -> Tensor:
        """(n, d) float32. Raises ValueError with the name of the input that the encoder failed on."""
        keys = [content_key(item) if cache else None for item in inputs]
        found: dict[bytes, np.ndarray] = self.cache.get([key for key in keys if key is not None]) if cache else {}
        rows: list[np.ndarray | None] = [found.get(key) if key is not None else None for key in keys]
        missing = _first_of_each(keys, rows)
        if self.kind == "text":
            missing.sort(key=lambda i: len(inputs[i]))  # a batch is padded to its longest text
        for start in range(0, len(missing), batch_size):
            batch = missing[start : start + batch_size]
            made = self._batch(inputs, batch)
            new = {}
            for i, row in zip(batch, made, strict=True):
                rows[i] = row
                if (key := keys[i]) is not None:
                    new[key] = row
            self.cache.put(new)
            found |= new
            if progress is not None:
                progress(min(start + batch_size, len(missing)), len(missing))
        complete = [found[key] if row is None and key is not None else row for key, row in zip(keys, rows, strict=True)]
        sizes = {row.shape for row in complete if row is not None}
        if len(sizes) != 1:
            raise ValueError(f"the encoder gives vectors of different sizes, {sorted(sizes)}: it must give one size")
        return torch.from_numpy(np.stack(complete))  # type: ignore[arg-type]

    def __deepcopy__(self, memo: dict[int, Any]) -> Encoder:
        """The encoder itself. It is never changed, so copies of a classifier share its weights and cache."""
        return self

    def _batch(self, inputs: Sequence[Any], batch: Sequence[int]) -> np.ndarray:
        """(batch, d). If the encoder fails, the inputs are tried one at a time to find and name the bad one."""
        try:
            return self._checked([inputs[i] for i in batch], f"inputs {min(batch)} to {max(batch)}")
        except Exception as error:
            for i in batch if len(batch) > 1 else ():
                try:
                    self._checked([inputs[i]], f"input {i}")
                except Exception as of_one:
                    raise _failure(of_one, f"input {i}", inputs[i]) from of_one
            raise _failure(error, f"input {batch[0]}" if len(batch) == 1 else "a batch", inputs[batch[0]]) from error

    def _checked(self, items: list[Any], which: str) -> np.ndarray:
        """The encoder's vectors for a batch. Raises ValueError unless there is one finite vector per input."""
        made = _called(self.call, items, self.transform)
        made = made.detach().cpu().float().numpy() if isinstance(made, Tensor) else made
        made = np.asarray(made.toarray() if hasattr(made, "toarray") else made)
        if made.dtype.kind not in "buif":
            raise ValueError(f"the encoder gives {made.dtype} instead of numbers for {which}")
        if made.ndim != 2 or len(made) != len(items) or made.shape[1] < 1:
            raise ValueError(
                f"the encoder must give one vector for each input, ({len(items)}, d); it gives {made.shape} for {which}"
            )
        made = made.astype(np.float32)
        if not np.isfinite(made).all():
            raise ValueError(f"the encoder gives NaN or infinite values for {which}: leave it out, or mend the encoder")
        return made


def _called(call: Any, items: Any, transform: Callable[[Any], Any] | None) -> Any:
    """Call an encoder of any supported type on a batch."""
    if transform is not None:
        ready = [transform(item) for item in items]
        items = torch.stack(ready) if isinstance(ready[0], Tensor) else ready
    if hasattr(call, "encode"):  # SentenceTransformer
        return call.encode(items)
    if isinstance(call, nn.Module):
        batch = items if isinstance(items, Tensor) else torch.from_numpy(np.stack([np.asarray(x) for x in items]))
        parameter = next(call.parameters(), torch.empty(0))
        batch = batch.to(parameter.device, parameter.dtype if batch.is_floating_point() else None)
        was = call.training
        with torch.inference_mode():
            try:
                return call.eval()(batch)
            finally:
                call.train(was)
    if hasattr(call, "transform"):  # of scikit-learn
        return call.transform(items)
    return call(items)


def _failure(error: Exception, which: str, item: Any) -> ValueError:
    what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    if isinstance(item, os.PathLike):
        if (shown := os.fspath(item)) in what:
            return ValueError(f"{which}: {what}")
    else:
        shown = repr(item) if isinstance(item, str) else type(item).__name__
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    return ValueError(f"the encoder failed on {which} ({shown}): {what}")


def _first_of_each(keys: Sequence[bytes | None], rows: Sequence[np.ndarray | None]) -> list[int]:
    """The indices of the inputs to encode: those not in the cache, equal inputs once."""
    seen: set[Hashable] = set()
    missing = []
    for i, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if row is None and (key is None or key not in seen):
            missing.append(i)
            seen.add(key)
    return missing


def _described(call: Any, transform: Any) -> str:
    """A fingerprint for an encoder that has none: its type, and a digest of its weights, code or parameters."""
    parts = [f"{type(call).__module__}.{type(call).__qualname__}"]
    if isinstance(call, nn.Module):
        parts.append(digest({k: v for k, v in call.state_dict().items() if torch.is_tensor(v)}, {}))
    elif (code := getattr(call, "__code__", None)) is not None:
        parts += [call.__qualname__, hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()]
    elif hasattr(call, "get_params"):
        import joblib

        parts.append(joblib.hash(call))
    if transform is not None:
        parts.append(f"after {getattr(transform, '__qualname__', type(transform).__qualname__)}")
    return " ".join(parts)


@functools.lru_cache(maxsize=8)
def named(name: str, device: str) -> Encoder:
    """A packaged encoder by its name. It is opened once per process and shared by all classifiers."""
    if name == "text":
        from csn.classifier.encoders.text import SentenceEncoder

        return Encoder(SentenceEncoder(device), kind="text")
    if name == "photos":
        from csn.classifier.encoders.photos import HEAD, PhotoEncoder

        return Encoder(PhotoEncoder(device), kind="photos", head=HEAD)
    raise ValueError(f"unknown encoder {name!r}: choose drawings, text or photos, your own encoder, or None")


def open_encoder(encoder: Any, device: str) -> Encoder:
    """The encoder that a user gave, by name or as an object."""
    if isinstance(encoder, str):
        return named(encoder, device)
    if isinstance(encoder, Encoder):
        return encoder
    if not (callable(encoder) or hasattr(encoder, "encode") or hasattr(encoder, "transform")):
        raise ValueError(
            f"an encoder is a name, a callable, a torch module, or an object with .encode or .transform; got "
            f"{type(encoder).__name__}"
        )
    return Encoder(encoder)
