"""Eq. 6, computed by csn.core.conditioning.preprocess_gradient."""

import matplotlib.pyplot as plt
import torch

from csn.core.conditioning import preprocess_gradient

gradient = torch.logspace(-6, 0, 301)
pair = preprocess_gradient(gradient)
figure, axes = plt.subplots(figsize=(6, 2.7))
axes.semilogx(gradient, pair[:, 0], label="first number: log |x| / 7, or -1")
axes.semilogx(gradient, pair[:, 1], "--", label="second number: sign of x, or e⁷ x")
axes.axvline(torch.e**-7, color="gray", linestyle=":")
axes.set(xlabel="gradient x (positive)", ylabel="what g is told")
axes.grid(alpha=0.3)
axes.legend(fontsize=8)
figure.tight_layout()
