"""Prepare inputs for a learner: arrays, tensors, pictures, files and sentences become tensors.

A learner for characters takes ink: (1, h, w), where 0 is paper and 1 is ink, as in its training data. A picture of any
size, colours and contrast is converted to that form. Each picture is converted alone, so the result never depends on
the rest of its batch. Images are kept as bytes (the learner sees byte / 255), vectors in the learner's precision.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csn.classifier.guard import is_foreign
from csn.data.images.area import area_matrix
from csn.data.images.modes import DAMAGED, has_transparency, is_numeric, levels, upright
from csn.data.images.options import FORMATS
from csn.data.text.sentences import MARKERS
from csn.learner import InputSpec
from csn.networks.sentences import BLANK, PAD, UNKNOWN

MAX_PIXELS = 32_000_000  # limit for one picture, checked before it is decoded
MAX_SIDE = 10_000
NO_SENTENCES = "no examples: expected at least one sentence, got an empty batch"
SHOWN = 100  # characters of a sentence in a message
EMPTY = 0.02  # a drawing is empty paper if its darkest and lightest pixels differ by less than this
FAINT = 0.5  # contrast below this means pencil or a grey scan, which is stretched to full strength
GREY = (0.299, 0.587, 0.114)  # ITU-R 601, as in pillow


@dataclass(frozen=True)
class Prepared:
    """Examples as a learner takes them.

    inputs: (n, *shape).
    foreign: (n,) True for each example that is not a pen drawing although drawings are expected.
    """

    inputs: Tensor
    foreign: np.ndarray


def prepare(x: Any, spec: InputSpec, dtype: torch.dtype = torch.float32) -> Tensor:
    """Examples as a learner takes them: the inputs of `prepare_checked`."""
    return prepare_checked(x, spec, dtype).inputs


def prepare_checked(x: Any, spec: InputSpec, dtype: torch.dtype = torch.float32) -> Prepared:
    """Examples as (n, *shape): uint8 for images, int64 for sentences, `dtype` for vectors.

    - Images: arrays and tensors (n, h, w), (n, h, w, channels) or (n, h * h); tensors may also have channels first.
      Also one picture or file path, or a sequence of pictures, paths and (h, w[, channels]) arrays of any sizes.
    - Sentences: word numbers (n, T), or strings with one word replaced by <blank>.
    - Anything else: arrays (n, *shape) or (n, numbers).
    """
    if spec.vocabulary is not None:
        return _unquestioned(_sentences(x, spec))
    if not spec.is_image:
        return _unquestioned(_vectors(x, spec, dtype))
    images = list(_each_image(x))
    if not images:
        raise ValueError("no examples: expected at least one image, got an empty batch")
    rows, foreign = [], []
    for i, image in enumerate(images):
        try:
            rows.append(_colours(image, spec.shape) if spec.shape[0] == 3 else _ink(image, spec.shape))
        except ValueError as error:
            raise ValueError(f"image {i}: {error}" if len(images) > 1 else str(error)) from error
        foreign.append(spec.shape[0] == 1 and is_foreign(levels(image)))
    return Prepared(torch.from_numpy(np.stack(rows)), np.array(foreign))


def _unquestioned(inputs: Tensor) -> Prepared:
    return Prepared(inputs, np.zeros(len(inputs), dtype=bool))


def is_table(X: Any) -> bool:
    """Whether X is two-dimensional data (an array, a data frame, lists of numbers, a sparse matrix)."""
    if hasattr(X, "shape"):
        return len(X.shape) == 2
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple) and X[0]:
        return isinstance(X[0][0], int | float)
    return False


def open_image(path: str | os.PathLike[str]) -> np.ndarray:
    """A picture file as (h, w, 1 to 4) uint8. A file of another type or too large is refused before it is decoded."""
    image = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            with image.open(path, formats=FORMATS) as opened:
                return _from_pillow(opened)
    except (image.DecompressionBombError, image.DecompressionBombWarning) as error:
        raise ValueError(f"{path} has too many pixels, at most {MAX_PIXELS:,} are read: make it smaller") from error
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except DAMAGED as error:
        kinds = ", ".join(FORMATS)
        raise ValueError(f"{path} is damaged or not a picture ({error}): expected a file of type {kinds}") from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError('pictures and files need pillow: pip install "csn[data]"') from error
    return Image


def _from_pillow(image: Any) -> np.ndarray:
    """A pillow image as (h, w, channels). Photographs are rotated upright."""
    _check_size(image.height, image.width)
    image = upright(image)
    if is_numeric(image):
        return np.asarray(image)[..., None]
    mode = "RGBA" if has_transparency(image) else "L" if image.mode in ("1", "L") else "RGB"
    pixels = np.asarray(image.convert(mode))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _each_image(x: Any) -> Iterator[np.ndarray]:
    """(h, w, channels) arrays, one per example."""
    yield from map(one_image, each_item(x))


def each_item(x: Any) -> Iterator[Any]:
    """Pictures one by one. An array is read along its first axis."""
    if isinstance(x, str | os.PathLike) or hasattr(x, "getbands"):
        x = [x]
    if isinstance(x, Tensor):
        if x.ndim == 4 and x.shape[1] in (1, 3, 4) and x.shape[3] not in (1, 3, 4):
            x = x.permute(0, 2, 3, 1)
        x = _as_array(x)
    if isinstance(x, np.ndarray) and x.dtype != object:
        if x.ndim == 2:
            if x.dtype != np.uint8 and x.dtype != bool:
                raise ValueError(
                    f"a table of numbers {x.shape} where pictures are expected: use encoder=None if its rows are "
                    f"vectors, or reshape them to (n, height, width) if they are pictures"
                )
            side = math.isqrt(x.shape[1])
            if side * side != x.shape[1] or side == 0:
                raise ValueError(
                    f"an array (examples, {x.shape[1]}) does not hold square images in its rows: give (n, h, w) or "
                    f"(n, h, w, channels); a single image needs a leading axis, image[None]"
                )
            x = x.reshape(-1, side, side)
        if x.ndim == 4 and x.shape[1] in (1, 3, 4) and x.shape[3] not in (1, 3, 4):
            x = x.transpose(0, 2, 3, 1)
        if x.ndim not in (3, 4):
            raise ValueError(f"images come as (n, h, w), (n, h, w, channels) or (n, h * h), got shape {x.shape}")
    elif not isinstance(x, Sequence | np.ndarray) and not hasattr(x, "__iter__"):
        raise ValueError(f"expected arrays, tensors, pictures or file paths, got {type(x).__name__}")
    yield from x


def one_image(item: Any) -> np.ndarray:
    """One picture as (h, w, channels)."""
    if isinstance(item, str | os.PathLike):
        return open_image(item)
    if hasattr(item, "getbands"):
        return _from_pillow(item)
    image = _as_array(item) if isinstance(item, Tensor) else np.asarray(item)
    if image.dtype.kind not in "buif":
        raise ValueError(f"a picture needs numbers, got an array of {image.dtype}")
    if image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4):
        image = image.transpose(1, 2, 0)
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4):
        raise ValueError(f"a picture is (h, w) or (h, w, 1, 3 or 4 channels), got shape {np.shape(item)}")
    _check_size(*image.shape[:2])
    return image


def _as_array(x: Tensor) -> np.ndarray:
    """A tensor as a NumPy array. NumPy has no bfloat16, so such tensors are converted."""
    x = x.detach().cpu()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _check_size(height: int, width: int) -> None:
    if min(height, width) < 1 or max(height, width) > MAX_SIDE or height * width > MAX_PIXELS:
        raise ValueError(
            f"{width} x {height} pixels cannot be read: a picture has 1 to {MAX_SIDE} on a side and at most "
            f"{MAX_PIXELS:,} in all; make it smaller"
        )


def _grey(image: np.ndarray) -> np.ndarray:
    """(h, w, channels) -> (h, w) in [0, 1]. Transparent pixels become paper that contrasts with the ink."""
    scaled = levels(image)
    if scaled.shape[2] == 1:
        return scaled[..., 0]
    grey: np.ndarray = scaled[..., :3] @ np.array(GREY, dtype=np.float32)
    if scaled.shape[2] == 4:
        alpha = scaled[..., 3]
        if alpha.max() > 0:
            light = float((grey * alpha).sum() / alpha.sum()) > 0.5 and alpha.min() < 0.5
            grey = grey * alpha + (0.0 if light else 1.0) * (1 - alpha)
        else:
            grey = np.ones_like(grey)
    return grey


def _ink(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(1, height, width) uint8: the whole picture, scaled by area averaging with its proportions kept, and centred."""
    grey = _grey(image)
    low, high = float(grey.min()), float(grey.max())
    if high - low < EMPTY and not (high <= 1 / 255 + 1e-6 and image.dtype.kind in "bui" and high > 0 == low):
        raise ValueError("the drawing is empty: it has the same colour everywhere; draw something")
    dark_on_light = _paper_is_light(grey, (low + high) / 2)
    if low >= 0 and high - low >= FAINT:
        ink = 1 - grey if dark_on_light else grey
    else:
        ink = (high - grey if dark_on_light else grey - low) / (high - low)
    h, w = ink.shape
    side = max(h, w)
    rows, columns = area_matrix(side, shape[1]), area_matrix(side, shape[2])
    top, left = (side - h) // 2, (side - w) // 2
    small = rows[:, top : top + h] @ ink @ columns[:, left : left + w].T
    return np.rint(255 * small.clip(0, 1)).astype(np.uint8)[None]


def _paper_is_light(grey: np.ndarray, middle: float) -> bool:
    """Whether the paper is lighter than the ink. Paper covers most of a picture; if unclear, the border decides."""
    light = grey > middle
    share = float(light.mean())
    if not 0.4 <= share <= 0.6:
        return share > 0.5
    border = np.concatenate([light[0], light[-1], light[:, 0], light[:, -1]])
    return float(border.mean()) > 0.5


def _colours(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(3, height, width) uint8, stretched to this size: a photograph has no paper to be centred on.

    Transparent pixels become white, as in training.
    """
    scaled = _on_white(image)
    rows, columns = area_matrix(scaled.shape[0], shape[1]), area_matrix(scaled.shape[1], shape[2])
    small = np.stack([rows @ scaled[..., c] @ columns.T for c in range(3)])
    return np.rint(255 * small.clip(0, 1)).astype(np.uint8)


def _on_white(image: np.ndarray) -> np.ndarray:
    """(h, w, 1, 3 or 4 channels) of any type -> (h, w, 3) from 0 to 1, on white where it is transparent."""
    scaled = levels(image)
    if scaled.shape[2] == 4:
        return scaled[..., :3] * scaled[..., 3:] + (1 - scaled[..., 3:])
    return scaled if scaled.shape[2] == 3 else np.repeat(scaled, 3, axis=2)


def to_rgb(image: np.ndarray, side: int) -> np.ndarray:
    """A photograph as (side, side, 3) uint8. Its shorter side is scaled to `side`; the longer one is cropped evenly.

    Transparent pixels become white.
    """
    from PIL import Image

    pixels = np.rint(255 * _on_white(image).clip(0, 1)).astype(np.uint8)
    height, width, _ = pixels.shape
    cut = min(height, width)
    top, left = (height - cut) // 2, (width - cut) // 2
    square = Image.fromarray(np.ascontiguousarray(pixels[top : top + cut, left : left + cut]))
    return np.asarray(square.resize((side, side), Image.Resampling.BICUBIC, reducing_gap=3.0))


def _vectors(x: Any, spec: InputSpec, dtype: torch.dtype) -> Tensor:
    """(n, *shape) numbers as they are."""
    with contextlib.suppress(TypeError, ValueError):
        x = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x, dtype=np.float64))
    if not isinstance(x, Tensor):
        raise ValueError(f"expected an array of numbers (n, {', '.join(map(str, spec.shape))}), got {type(x).__name__}")
    numbers = math.prod(spec.shape)
    if x.ndim < 2 or math.prod(x.shape[1:]) != numbers:
        raise ValueError(f"this learner takes {numbers} numbers per example, (n, {numbers}); got {tuple(x.shape)}")
    x = x.detach().cpu().to(dtype).reshape(len(x), *spec.shape)
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the input holds NaN, infinite or too large values: clean it first")
    return x


def _sentences(x: Any, spec: InputSpec) -> Tensor:
    """(n, T) int64 word numbers."""
    if isinstance(x, str):
        x = [x]
    if isinstance(x, Tensor) or (isinstance(x, np.ndarray) and x.dtype.kind not in "OUS"):
        # torch cannot compare unsigned numbers; those too large for int64 become negative and are refused.
        rows = torch.as_tensor(x.astype(np.int64) if isinstance(x, np.ndarray) and x.dtype.kind == "u" else x)
        if not rows.numel():
            raise ValueError(NO_SENTENCES)
        size = spec.vocabulary if isinstance(spec.vocabulary, int) else len(spec.vocabulary or ())
        if rows.ndim != 2 or rows.is_floating_point() or int(rows.min()) < 0 or int(rows.max()) >= size:
            raise ValueError(f"sentences come as strings or whole word numbers (n, T) in [0, {size})")
        return rows.long()
    if not isinstance(spec.vocabulary, tuple):
        raise ValueError("this learner has no list of words (vocabulary.json of its run): give word numbers (n, T)")
    found = [_sentence(str(text), spec.vocabulary, spec.shape[0]) for text in x]
    if not found:
        raise ValueError(NO_SENTENCES)
    return torch.tensor(found)


def _sentence(text: str, vocabulary: tuple[str, ...], steps: int) -> list[int]:
    """The words around the blank, which is in the middle. PAD fills both ends, UNKNOWN stands for unknown words."""
    words = text.split()
    marker = MARKERS[BLANK]
    if words.count(marker) != 1:
        got = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
        raise ValueError(f"a sentence needs exactly one {marker} in place of a word, separated by spaces; got {got}")
    number = {word: i for i, word in enumerate(vocabulary) if i > UNKNOWN} | {marker: BLANK}
    start = words.index(marker) - steps // 2
    inside = range(len(words))
    return [number.get(words[i], UNKNOWN) if i in inside else PAD for i in range(start, start + steps)]
