"""Random changes of images: a drawing as another hand might have placed it, a photograph as taken from elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from csn.episode import Episode, Examples


def augment(episode: Episode, strength: float) -> Episode:
    """Each image of every task changed on its own; labels stay."""
    support, query = (Examples(augmented(part.x, strength), part.y) for part in (episode.support, episode.query))
    return Episode(support, query, episode.way)


def augmented(images: Tensor, strength: float) -> Tensor:
    """(..., channels, h, w) -> the same, each image turned, scaled, slanted and moved on its own.

    Drawings (one channel) get another pen too, photographs are seen in a mirror half of the time.
    """
    if images.ndim < 3 or images.shape[-3] == 1:
        return pen(affine(images, strength), strength)
    return affine(mirrored(images), strength, padding="reflection")


def mirrored(images: Tensor) -> Tensor:
    """(..., channels, h, w) -> the same, half of the images with left and right exchanged."""
    chosen = torch.rand(images.shape[:-3], device=images.device) < 0.5
    return torch.where(chosen[..., None, None, None], images.flip(-1), images)


def affine(images: Tensor, strength: float, *, padding: str = "zeros") -> Tensor:
    """(..., channels, h, w) -> the same shape; at strength 1 the spread is 9 degrees, 10 % and 3.5 % of the side.

    padding: what there is beyond the edge, "zeros" (paper) or a "reflection".
    """
    if images.ndim < 4:
        raise ValueError(f"only images can be augmented, got {tuple(images.shape)}: set train.augment=0")
    flat = images.flatten(0, -4)
    turn, scale_x, scale_y, slant, shift_x, shift_y = strength * torch.randn(6, len(flat), device=images.device)
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
    return F.grid_sample(flat, grid, padding_mode=padding, align_corners=False).view_as(images)


def pen(images: Tensor, strength: float) -> Tensor:
    """(..., channels, h, w), ink on 0 -> with strokes up to a pixel wider on either side, or somewhat thinner."""
    flat = images.flatten(0, -4)
    width = (0.5 * strength * torch.randn(len(flat), 1, 1, 1, device=images.device)).clamp(-0.5, 1.0)
    wider = F.max_pool2d(flat, 3, stride=1, padding=1)
    thinner = -F.max_pool2d(-flat, 3, stride=1, padding=1)
    # Thinning stops half way: strokes are two pixels wide, and would vanish.
    changed = torch.where(width > 0, torch.lerp(flat, wider, width), torch.lerp(flat, thinner, -width))
    return changed.view_as(images)
