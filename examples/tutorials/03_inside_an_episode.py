"""
What happens inside one episode
===============================

One task, five classes, one drawing of each. This tutorial follows it through the network: error, information, memory,
attention, shift. Each step is one equation of the paper and one function of csn.
"""

# %%
# The task
# --------
# Five invented characters that the network has never seen. The weights come with csn: an adaCNN with direct feedback.

import matplotlib.pyplot as plt
import torch

import csn
from csn.classifier.pretrained import open_shipped

learner = open_shipped("characters")[0].eval()
data = csn.load_data("strokes")
episode = csn.EpisodeSource(data, "test", way=5, shot=1, queries=1, seed=0).batch(first=3, tasks=1)
support, query = episode.support, episode.query

figure, axes = plt.subplots(2, 5, figsize=(6, 2.8), layout="constrained")
order = query.y[0].argsort()
for label in range(5):
    axes[0, label].imshow(support.x[0, label, 0], cmap="gray_r")
    axes[1, label].imshow(query.x[0, order[label], 0], cmap="gray_r")
    axes[0, label].set_title(f"class {support.y[0, label]}", fontsize=9)
for cell in axes.flat:
    cell.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("support")
axes[1, 0].set_ylabel("query")
figure.suptitle("One task: what is shown, and what is asked")

# %%
# 1. The error
# ------------
# The base learner answers the support without shifts. It knows nothing of this task, so its answers are nearly
# uniform. The error is its prediction minus the truth.

with torch.no_grad():
    output = learner.base(support.x[0])
    prediction = output.logits[:, :5].softmax(-1)
    truth = torch.nn.functional.one_hot(support.y[0], 5)
    error = prediction - truth
print(error.numpy().round(2))

# %%
# 2. The information (eq. 7)
# --------------------------
# Direct feedback tells each neuron the error, multiplied by the derivative of its activation. For ReLU that is the
# error where the neuron is on, and 0 where it is off. The output layer gets the error in another order for each
# neuron.

with torch.no_grad():
    information = learner.conditioning(output, support.y, learner.base.activations, learner.way)
for layer, info in enumerate(information):
    print(f"adapted layer {layer}: information of shape {tuple(info.dense().shape)}")

# %%
# 3. The memory (eq. 2)
# ---------------------
# The memory function g turns the information of each neuron into one number, its value. ``describe`` does all of this
# and stores a row for each example: a key, and the values of all neurons.

with torch.no_grad():
    memory = learner.describe(support)
print("keys:", tuple(memory.keys.shape))
for layer, values in enumerate(memory.values):
    print(f"values of adapted layer {layer}: {tuple(values.dense().shape)}")

figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
drawn = axes.imshow(memory.values[-1].dense()[0].detach(), cmap="coolwarm")
axes.set(xlabel="output neuron", ylabel="example", title="Values that g writes at the output layer")
axes.set_xlim(-0.5, 4.5)
figure.colorbar(drawn)

# %%
# An example writes a high value at the neuron of its own class. Nobody told g to do so: it is what training found.

# %%
# 4. The attention (eq. 3)
# ------------------------
# The key function compares each query with the keys in memory. A softmax over the cosines gives the attention.

with torch.no_grad():
    attention = learner.attend(query.x, memory)[0]
figure, axes = plt.subplots(figsize=(4, 3), layout="constrained")
drawn = axes.imshow(attention, cmap="Blues", vmin=0, vmax=1)
axes.set(xlabel="example in memory", ylabel="query", title="Attention of each query")
figure.colorbar(drawn)
print(attention.numpy().round(2))

# %%
# 5. The shift (eqs. 4 and 1)
# ---------------------------
# A query reads the mean of the values, weighted by its attention: the shift beta of each neuron. The network then
# runs again, with sigma(beta) added to each activation.

with torch.no_grad():
    shifts = memory.read(attention[None])
    plain = learner.base(query.x[0]).logits[:, :5].softmax(-1)
    shifted = learner.predict(query.x, memory)[0].softmax(-1)
for layer, beta in enumerate(shifts):
    print(f"adapted layer {layer}: shifts from {beta.min():+.2f} to {beta.max():+.2f}")

figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
for cell, answers, title in zip(axes, (plain, shifted), ("without shifts", "with shifts"), strict=True):
    cell.imshow(answers[order], cmap="Blues", vmin=0, vmax=1)
    cell.set(xlabel="class", title=title)
axes[0].set_ylabel("query of class")
figure.suptitle("The same network before and after the shift")

# %%
# The answer
# ----------

print("truth: ", query.y[0].tolist())
print("before:", plain.argmax(-1).tolist())
print("after: ", shifted.argmax(-1).tolist())

# %%
# Forgetting is deleting a row: ``memory.rows([0, 1, 2, 3])`` is the memory without the last example. The equations
# are on :doc:`/how-it-works`.
