"""Small damages to bytes, to JSON values and to signed files, drawn by whoever drives them."""

from __future__ import annotations

import copy
import json
import struct
import zlib
from collections.abc import Iterable
from random import Random
from typing import Any

import safetensors
import safetensors.torch
import torch

from csn.engine.checkpoint import digest

KINDS = ("flip", "set", "delete", "repeat", "insert", "number", "cut", "swap")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, 1 << 62, (1 << 64) - 1)
WORDS = (
    b"\0",
    b"\n",
    b"\r\n",
    b'"',
    b",",
    b"null",
    b"NaN",
    b"Infinity",
    b"-1",
    b"1e999",
    b"9" * 40,
    b"9" * 5000,
    b"[" * 2000,
    b'{"a":' * 500,
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\ufeff\u2028\u202e".encode(),
    b"\\ud800",
    b"../../etc/passwd",
    b"IHDR",
    b"\xff\xc0",
    b"cos\nsystem\n",
    b"cnumpy\nndarray\n",
    b'"__proto__": {"x": 1}, ',
    "e\u0301\u0323\u200d".encode() * 100,
    b"[PAD] [CLS]",
    b"=cmd|' /C calc'!A0",
    b"<img src=x onerror=alert(1)>",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**7,
    10**30,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "quantum",
    "\ud800",
    "../x",
    [],
    [None],
    [[]],
    {},
    {"name": "csn"},
    {"__proto__": {"x": 1}},
    {"toString": 1},
    [0, 10**9],
    "x" * 61,
    "<b>\u202e",
    [1, 28, 28],
    [0],
    [-1],
    [10**9, 10**9],
)
Edit = tuple[str, float, int]  # kind, place as a share of the length, a number that means what the kind wants


def damaged(content: bytes, edits: Iterable[Edit]) -> bytes:
    """Bytes after some edits."""
    data = bytearray(content)
    for kind, share, number in edits:
        place = int(share * len(data))
        if kind == "flip" and data:
            data[min(place, len(data) - 1)] ^= 1 << number % 8
        elif kind == "set" and data:
            data[min(place, len(data) - 1)] = number % 256
        elif kind == "delete":
            del data[place : place + 1 + number % 64]
        elif kind == "repeat":
            data[place:place] = data[place : place + 1 + number % 256]
        elif kind == "insert":
            data[place:place] = WORDS[number % len(WORDS)]
        elif kind == "number":
            size, order = (1, 2, 4, 8)[number % 4], "<>"[number // 4 % 2]
            value = NUMBERS[number // 8 % len(NUMBERS)] % (1 << 8 * size)
            data[place : place + size] = struct.pack(order + {1: "B", 2: "H", 4: "I", 8: "Q"}[size], value)
        elif kind == "cut":
            del data[place:]
        elif kind == "swap":
            a, b = place, number % (len(data) + 1)
            data[a : a + 8], data[b : b + 8] = data[b : b + 8], data[a : a + 8]
    return bytes(data[: 1 << 20])


def drawn_edits(random: Random) -> list[Edit]:
    """Some edits, mostly few."""
    count = 1 + int(random.expovariate(0.7))
    return [(random.choice(KINDS), random.random(), random.randrange(1 << 16)) for _ in range(count)]


def changed_json(value: Any, random: Random) -> Any:
    """A JSON value with one of its parts replaced, dropped, doubled or renamed."""
    places = [(None, None), *_places(value)]
    holder, key = random.choice(places)
    new = copy.deepcopy(random.choice([*VALUES, _part(value, random)]))
    if holder is None:
        return new if random.random() < 0.05 else value
    action = random.randrange(6)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[random.choice(["", "x", "name", "way", "__proto__", "constructor", key * 2])] = holder.pop(key)
    elif action == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[key] = new
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 50)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


def _part(value: Any, random: Random) -> Any:
    places = _places(value)
    if not places:
        return value
    holder, key = random.choice(places)
    return holder[key]


def unpacked(content: bytes) -> tuple[dict[str, torch.Tensor], Any] | None:
    """Tensors and metadata of a checkpoint, whatever its checksum says; None if it is none."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        about = json.loads(header["__metadata__"]["csn"])["metadata"]
        return safetensors.torch.load(content), about
    except (struct.error, ValueError, KeyError, TypeError, RecursionError, safetensors.SafetensorError, OverflowError):
        return None


def signed(tensors: dict[str, torch.Tensor], about: Any) -> bytes:
    """A checkpoint whose checksum is right."""
    header = {"format": 1, "sha256": digest(tensors, about), "metadata": about}
    return safetensors.torch.save(tensors, metadata={"csn": json.dumps(header)})


def reshaped(tensors: dict[str, torch.Tensor], random: Random) -> dict[str, torch.Tensor]:
    """Tensors of which one is missing, of another shape or type, renamed, or holds what no number should be."""
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    name = random.choice(sorted(changed)) if changed else None
    if name is None:
        return changed
    action, tensor = random.randrange(7), changed[name]
    if action == 0:
        del changed[name]
    elif action == 1:
        changed[name] = tensor.reshape(-1)[: random.randrange(tensor.numel() + 1)].clone()
    elif action == 2:
        changed[name] = tensor.to(random.choice([torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool]))
    elif action == 3:
        changed[name + random.choice(["", "x", ".0"])] = changed.pop(name)
    elif action == 4 and tensor.is_floating_point() and tensor.numel():
        changed[name].view(-1)[0] = random.choice([float("nan"), float("inf"), 1e38])
    elif action == 5 and tensor.numel() and not tensor.is_floating_point() and tensor.dtype != torch.bool:
        changed[name].view(-1)[0] = random.choice([-1, 255, 2**31, 2**62]) if tensor.dtype == torch.int64 else 255
    elif action == 6:
        changed[name] = torch.cat([tensor[None], tensor[None]]).reshape(-1)
    return changed


def with_checksums(content: bytes) -> bytes:
    """A PNG file whose chunks have the checksums that their contents want, so that decoders look at these."""
    out, place = bytearray(content[:8]), 8
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        body = content[place + 4 : place + 8 + length]
        out += content[place : place + 4] + body + struct.pack(">I", zlib.crc32(body))
        place += 12 + length
    return bytes(out)
