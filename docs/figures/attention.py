"""Eq. 3 for one query and five keys, at three temperatures."""

import matplotlib.pyplot as plt
import torch

cosines = torch.tensor([0.9, 0.5, 0.4, 0.2, 0.1])
figure, axes = plt.subplots(1, 3, figsize=(8, 2.4), sharey=True)
for cell, scale in zip(axes, (1, 10, 100), strict=True):
    cell.bar(range(5), (scale * cosines).softmax(0))
    cell.set_xticks(range(5), [f"{cosine:.1f}" for cosine in cosines.tolist()])
    cell.set(title=f"scale {scale}" + (" (as printed)" if scale == 1 else ""), xlabel="cosine")
axes[0].set_ylabel("attention")
figure.tight_layout()
