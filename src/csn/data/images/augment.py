"""Random changes of images. A drawing gets another place and pen, and a photograph another view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.data.images.options import Framing, Redraw
from csn.episode import Episode, Examples

INK = 0.2  # a pixel with more ink than this belongs to the drawing, not to the paper
LEAST, MOST = 0.5, 0.95  # the part of the frame that a drawing fills after `placed_anywhere`
NODES = 5  # nodes per side of the grid of random displacements that bends a drawing smoothly
_PART: ContextVar[tuple[int, int, int] | None] = ContextVar("part", default=None)


@contextmanager
def share_of_step(first: int, stop: int, of: int) -> Iterator[None]:
    """Inside this context, images belong to tasks first ... stop - 1 of `of`.

    They change exactly as they would if all tasks were changed together.
    """
    token = _PART.set((first, stop, of))
    try:
        yield
    finally:
        _PART.reset(token)


def random_numbers(draw: Callable[..., Tensor], *shape: int, images: int, device: torch.device) -> Tensor:
    """Random numbers, `draw(*shape)`. Axis `images` has one entry per image."""
    if (part := _PART.get()) is None:
        return draw(*shape, device=device)
    first, stop, of = part
    each = shape[images] // (stop - first)
    whole = [each * of if axis == images else size for axis, size in enumerate(shape)]
    return draw(*whole, device=device).narrow(images, each * first, shape[images])


def augment(episode: Episode, strength: float) -> Episode:
    """Change each image of every task at random. Labels stay the same."""
    support, query = (Examples(augmented(part.x, strength), part.y) for part in (episode.support, episode.query))
    return Episode(support, query, episode.way, check=False)


def augmented(
    images: Tensor, strength: float, redraw: Redraw = "pen", bend: float = 0.0, framing: Framing = "turned"
) -> Tensor:
    """Turn, scale, slant and move each image at random: (..., channels, h, w) -> the same shape.

    Drawings (one channel) may get another pen too. Half of the photographs are mirrored.

    Args:
        images: The images.
        strength: The strength of the changes; see `affine`.
        redraw: For drawings: the "same" pen, another "pen", or "any" pen, size and place.
        bend: For drawings: how far strokes are bent; see `affine`.
        framing: For photographs: "turned" as above, or "cropped" and in other colours instead.
    """
    if images.ndim < 3 or images.shape[-3] == 1:
        if redraw == "any":
            return any_pen(affine(placed_anywhere(images), strength, bend=bend))
        moved = affine(images, strength, bend=bend)
        return pen(moved, strength) if redraw == "pen" else moved
    if framing == "cropped":
        return recoloured(cropped(mirrored(images), strength), strength)
    return affine(mirrored(images), strength, padding="reflection")


def mirrored(images: Tensor) -> Tensor:
    """Mirror half of the images, left to right: (..., channels, h, w) -> the same shape."""
    chosen = random_numbers(torch.rand, *images.shape[:-3], images=0, device=images.device) < 0.5
    return torch.where(chosen[..., None, None, None], images.flip(-1), images)


def cropped(images: Tensor, strength: float) -> Tensor:
    """Enlarge a random part of each image to the whole frame: (..., channels, h, w) -> the same shape.

    At strength 1 the part has 60 to 100 % of the area, and its sides are in a ratio of 3:4 to 4:3.
    """
    flat = images.flatten(0, -4)
    area, shape, across, down = random_numbers(torch.rand, 4, len(flat), images=1, device=images.device)
    side = (1 - 0.4 * strength * area).sqrt()
    stretch = (4 / 3) ** (strength * (shape - 0.5))
    width, height = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
    none = torch.zeros_like(width)
    x, y = (1 - width) * (2 * across - 1), (1 - height) * (2 * down - 1)
    matrix = torch.stack([torch.stack([width, none, x], -1), torch.stack([none, height, y], -1)], dim=-2)
    grid = F.affine_grid(matrix, list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, padding_mode="reflection", align_corners=False).view_as(images)


def recoloured(images: Tensor, strength: float) -> Tensor:
    """Change brightness, contrast and saturation of images in [0, 1]: (..., channels, h, w) -> the same shape.

    At strength 1 each is multiplied by a factor of 0.6 to 1.4.
    """
    flat = images.flatten(0, -4)
    numbers = random_numbers(torch.rand, 3, len(flat), 1, 1, 1, images=1, device=images.device)
    brightness, contrast, saturation = 1 + 0.4 * strength * (2 * numbers - 1)
    flat = brightness * flat
    middle = flat.mean((1, 2, 3), keepdim=True)
    flat = torch.lerp(middle, flat, contrast)
    return torch.lerp(flat.mean(1, keepdim=True), flat, saturation).clamp(0, 1).view_as(images)


def affine(images: Tensor, strength: float, *, padding: str = "zeros", bend: float = 0.0) -> Tensor:
    """Random affine maps of images: (..., channels, h, w) -> the same shape.

    Args:
        images: The images.
        strength: At 1, the standard deviations are 9 degrees, 10 % of the size and 3.5 % of the side.
        padding: The pixels beyond the edge: "zeros" (paper) or a "reflection".
        bend: Spread of a smooth displacement (an elastic distortion), in units of 3.5 % of the side; 0 for none.
    """
    if images.ndim < 4:
        raise ValueError(f"only images can be augmented, got {tuple(images.shape)}: set train.augment=0")
    flat = images.flatten(0, -4)
    turn, scale_x, scale_y, slant, shift_x, shift_y = strength * random_numbers(
        torch.randn, 6, len(flat), images=1, device=images.device
    )
    turn, scale_x, scale_y = 0.16 * turn, (0.1 * scale_x).exp(), (0.1 * scale_y).exp()
    cos, sin = turn.cos(), turn.sin()
    matrix = torch.stack(
        [
            torch.stack([scale_x * cos, -scale_y * (sin - 0.1 * slant), 0.07 * shift_x], -1),
            torch.stack([scale_x * sin, scale_y * cos, 0.07 * shift_y], -1),
        ],
        dim=-2,
    )
    grid = F.affine_grid(matrix, list(flat.shape), align_corners=False)
    if bend:
        nodes = 0.07 * bend * random_numbers(torch.randn, len(flat), 2, NODES, NODES, images=0, device=images.device)
        field = F.interpolate(nodes, size=flat.shape[-2:], mode="bicubic", align_corners=True)
        grid = grid + field.movedim(1, -1)
    return F.grid_sample(flat, grid, padding_mode=padding, align_corners=False).view_as(images)


def pen(images: Tensor, strength: float) -> Tensor:
    """Make strokes up to a pixel wider on either side, or somewhat thinner: (..., channels, h, w), ink on 0."""
    flat = images.flatten(0, -4)
    width = (0.5 * strength * random_numbers(torch.randn, len(flat), 1, 1, 1, images=0, device=images.device)).clamp(
        -0.5, 1.0
    )
    wider = F.max_pool2d(flat, 3, stride=1, padding=1)
    thinner = -F.max_pool2d(-flat, 3, stride=1, padding=1)
    # Thinning stops half way: strokes are two pixels wide, and would vanish.
    changed = torch.where(width > 0, torch.lerp(flat, wider, width), torch.lerp(flat, thinner, -width))
    return changed.view_as(images)


def placed_anywhere(images: Tensor) -> Tensor:
    """Move the ink of each image to any size and place: (..., channels, h, w) -> the same. A quarter stay unchanged.

    The longer side of the ink becomes half of the frame to nearly all of it, at random.
    """
    flat = images.flatten(0, -4)
    n, (h, w) = len(flat), flat.shape[-2:]
    ink = flat.amax(1) > INK
    top, bottom = _extent(ink.any(2))  # (n,) in [-1, 1], as grids count
    left, right = _extent(ink.any(1))
    size, across, down, stays = random_numbers(torch.rand, 4, n, images=1, device=images.device)
    side = torch.maximum((right - left) * w, (bottom - top) * h) / max(h, w)  # of the ink, 2 is the frame
    zoom = (side / 2 / (LEAST + (MOST - LEAST) * size)).clamp(0.25, 2.0)  # of the frame that is looked at
    # The new frame is centred at the ink, then moved at random as far as the ink stays inside.
    room_x, room_y = (zoom - (right - left) / 2).clamp_min(0), (zoom - (bottom - top) / 2).clamp_min(0)
    x = (left + right) / 2 + room_x * (2 * across - 1)
    y = (top + bottom) / 2 + room_y * (2 * down - 1)
    stay = (stays < 0.25) | ~ink.flatten(1).any(1)
    zoom, x, y = zoom.masked_fill(stay, 1.0), x.masked_fill(stay, 0.0), y.masked_fill(stay, 0.0)
    none = torch.zeros_like(zoom)
    matrix = torch.stack([torch.stack([zoom, none, x], -1), torch.stack([none, zoom, y], -1)], dim=-2)
    grid = F.affine_grid(matrix, list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, align_corners=False).view_as(images)


def _extent(inked: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the ink begins and ends, (n,) each, between -1 and 1: (n, side) bool."""
    side = inked.shape[1]
    first, last = inked.int().argmax(1), side - 1 - inked.flip(1).int().argmax(1)
    return 2 * first / side - 1, 2 * (last + 1) / side - 1


def any_pen(images: Tensor) -> Tensor:
    """Redraw each image with a random pen: (..., channels, h, w), ink on 0 -> the same shape.

    A pen is thin, wide, soft or coarse, and faint or strong. A third of the images keep their pen. A coarse image is
    shrunk to few pixels and enlarged again.
    """
    flat = images.flatten(0, -4)
    n, side = len(flat), flat.shape[-1]
    kept, width, soft, strong = random_numbers(torch.rand, 4, n, 1, 1, 1, images=1, device=images.device)
    wider = F.max_pool2d(flat, 3, stride=1, padding=1)
    widest = F.max_pool2d(wider, 3, stride=1, padding=1)
    inked = torch.where(  # strokes up to a pixel wider on either side, a quarter of them up to two
        width < 0.75, torch.lerp(flat, wider, width / 0.75), torch.lerp(wider, widest, (4 * width - 3).clamp_min(0))
    )
    blurred = F.avg_pool2d(F.pad(inked, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    inked = torch.lerp(inked, blurred, (2 * soft - 1).clamp_min(0))
    coarse = int(torch.randint(max(side // 4, 1), side + 1, ()))
    small = F.interpolate(inked, size=(coarse, coarse), mode="area")
    few = random_numbers(torch.rand, n, 1, 1, 1, images=0, device=images.device) < 0.2
    inked = torch.where(few, F.interpolate(small, size=flat.shape[-2:], mode="nearest"), inked)
    most = inked.amax((1, 2, 3), keepdim=True).clamp_min(INK)
    inked = (inked / most * (1.0 + strong)).clamp(0, 1) * torch.where(strong < 0.5, most, 1.0)
    return torch.where(kept < 1 / 3, flat, inked).view_as(images)
