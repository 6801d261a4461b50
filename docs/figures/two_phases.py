"""The two phases of a conditionally shifted network, as boxes and arrows."""

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(8, 3.6))
axes.set(xlim=(0, 16), ylim=(0, 7))
axes.axis("off")


def box(x: float, y: float, text: str, colour: str) -> None:
    """A labelled box around a point."""
    style = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": "#555555"}
    axes.text(x, y, text, ha="center", va="center", fontsize=10, bbox=style)


def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from one box to another."""
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": "#555555"})


for y, phase, example, answer in (
    (5.5, "description", "labelled\nexample", "error and\ninformation"),
    (1.5, "prediction", "new input", "shifted\nnetwork"),
):
    axes.text(0, y + 1.1, phase, fontsize=11, weight="bold")
    box(1.4, y, example, "#eeeeee")
    box(5.0, y, "base learner" if y > 3 else "key function f", "#d6e4f5")
    box(9.0, y, answer if y > 3 else "attention", "#f7dfc8")
    arrow((2.6, y), (3.4, y))
    arrow((6.6, y), (7.7, y))
box(13.5, 3.5, "memory\nkeys and values", "#d9ecd4")
box(13.5, 0.9, "shifted network\nand answer", "#f7dfc8")
arrow((10.3, 5.5), (12.4, 4.3))
axes.text(11.6, 5.2, "g writes", fontsize=9)
arrow((10.2, 1.8), (12.1, 3.1))
axes.text(9.9, 2.6, "f reads", fontsize=9)
arrow((13.5, 2.6), (13.5, 1.7))
axes.text(13.7, 2.1, "shifts", fontsize=9)
figure.tight_layout()
