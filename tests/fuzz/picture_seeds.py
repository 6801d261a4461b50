"""Pictures and archives of them, to damage."""

from __future__ import annotations

import functools
import io
import tarfile
import zipfile
from typing import Any

import numpy as np
from PIL import Image


def pictures() -> list[bytes]:
    """Files of all kinds and modes that are read."""
    rows = (np.indices((9, 13)).sum(0) * 11).astype(np.uint8)
    grey, found = Image.fromarray(rows), []
    for kind, modes in {"PNG": ("L", "1", "LA", "P", "RGBA", "I;16"), "JPEG": ("L", "RGB", "CMYK")}.items():
        found += [_saved(grey.convert(mode), kind) for mode in modes]
    found += [_saved(grey.convert("RGB"), kind) for kind in ("GIF", "WEBP", "BMP", "TIFF")]
    found.append(_saved(grey.convert("RGB"), "JPEG", progressive=True))
    frames = {"save_all": True, "append_images": [grey.convert("RGB")]}
    found += [_saved(grey.convert("RGB"), kind, **frames) for kind in ("PNG", "GIF", "WEBP")]
    return found


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@functools.cache
def archives() -> list[bytes]:
    """Zip archives in each layout."""
    found = []
    for names in (
        [f"{split}/c{i}/{j}.png" for split in ("train", "val", "test") for i in range(2) for j in range(2)],
        [f"c{i}/{j}.png" for i in range(7) for j in range(2)],
        ["images/a.png", "images/b.png", "train.csv", "val.csv", "test.csv", "../../x.png"],
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, "filename,label\na.png,x\n" if name.endswith(".csv") else pictures()[0])
        found.append(file.getvalue())
    return found


@functools.cache
def tars() -> list[bytes]:
    """Tar archives in each format, with classes in files of their own."""
    found = []
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            for c, j in np.ndindex(7, 2):
                for name, data in ((f"{c}{j}.png", pictures()[0]), (f"{c}{j}.cls", b"class %d" % c)):
                    info = tarfile.TarInfo(name)
                    info.size, info.pax_headers = len(data), {"comment": "a seed", "mtime": "1.5"}
                    archive.addfile(info, io.BytesIO(data))
        found.append(file.getvalue())
    return found
