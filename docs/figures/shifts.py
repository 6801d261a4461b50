"""Eq. 1 and its two ablations, computed by csn.core.neurons.shifted_activation."""

import matplotlib.pyplot as plt
import torch

from csn.core.neurons import RELU, SHIFT_RULES, shifted_activation

a = torch.linspace(-2, 2, 201)
figure, axes = plt.subplots(1, 3, figsize=(8, 2.7), sharey=True)
names = {"squashed": "squashed: σ(a) + σ(β)", "raw": "raw: σ(a) + β", "inside": "inside: σ(a + β)"}
for cell, rule in zip(axes, SHIFT_RULES, strict=True):
    for beta, style in ((-1.0, ":"), (0.0, "-"), (1.0, "--")):
        h = shifted_activation(a, torch.full_like(a, beta), RELU, rule)
        cell.plot(a, h, style, label=f"β = {beta:g}")
    cell.set(title=names[rule], xlabel="preactivation a")
    cell.grid(alpha=0.3)
axes[0].set_ylabel("activation h")
axes[0].legend(fontsize=8)
figure.tight_layout()
