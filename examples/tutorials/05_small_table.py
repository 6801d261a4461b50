"""
A table of the paper, small
===========================

Table 1 of the paper compares learners on Omniglot, with hours of training. This tutorial makes the same table in a
minute: smaller networks, generated characters, and a few hundred tasks. The order of the learners is already there;
the numbers are not.
"""

# %%
# The learners
# ------------
# Each has the same small CNN. All see the same training tasks and the same test tasks.

import time

import matplotlib.pyplot as plt
import torch

import csn
from csn.networks.cnn import CNNOptions

data = csn.load_data("strokes")
small = CNNOptions(filters=16, norm="batch")
learners = {
    "nearest neighbour on pixels": lambda: csn.build("nearest", reads=data.input_spec, way=5),
    "Prototypical Network": lambda: csn.build("prototypical", reads=data.input_spec, way=5, network=small),
    "Matching Network": lambda: csn.build("matching", reads=data.input_spec, way=5, network=small),
    "CSN, error gradient": lambda: csn.build(
        "csn", reads=data.input_spec, way=5, network=small, conditioning="gradient", temperature=10.0
    ),
    "CSN, direct feedback": lambda: csn.build(
        "csn", reads=data.input_spec, way=5, network=small, conditioning="df", temperature=10.0
    ),
}

# %%
# Training and test
# -----------------

STEPS, TASKS_A_STEP = 100, 2
training = csn.EpisodeSource(data, "train", way=5, shot=1, queries=5, seed=0)
test = csn.EpisodeSource(data, "test", way=5, shot=1, queries=5, seed=0)


def train(learner: csn.FewShotLearner) -> None:
    """A short training with Adam; a learner without weights has nothing to train."""
    if not any(weights.requires_grad for weights in learner.parameters()):
        return
    optimizer = torch.optim.Adam(learner.parameters(), lr=0.002)
    for step in range(STEPS):
        optimizer.zero_grad()
        learner(training.batch(first=TASKS_A_STEP * step, tasks=TASKS_A_STEP)).loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracies(learner: csn.FewShotLearner, batches: int = 6, tasks: int = 20) -> torch.Tensor:
    """The accuracy of each test task, in per cent."""
    found = []
    for batch in range(batches):
        episode = test.batch(first=tasks * batch, tasks=tasks)
        found.append((learner.eval()(episode).logits.argmax(-1) == episode.query.y).float().mean(1))
    return 100 * torch.cat(found)


# %%
# The table
# ---------
# Mean and 95 % interval over 120 test tasks, of one training each.

rows = {}
for name, make in learners.items():
    torch.manual_seed(0)
    learner, start = make(), time.process_time()
    train(learner)
    seconds, found = time.process_time() - start, accuracies(learner)
    rows[name] = (float(found.mean()), float(1.96 * found.std() / len(found) ** 0.5))
    print(f"{name:28} {rows[name][0]:5.1f} ± {rows[name][1]:.1f} %   {seconds:4.0f} s of training")

# %%

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
means, intervals = zip(*rows.values(), strict=True)
axes.errorbar(means, list(rows), xerr=intervals, fmt="o", capsize=3)
axes.axvline(20, linestyle=":", color="gray")
axes.invert_yaxis()
axes.set(xlabel="accuracy in %; chance is 20 %", title="5-way 1-shot on generated characters")

# %%
# The real table
# --------------
# ``csn reproduce omniglot`` trains and tests every cell of table 1, with intervals over seeds if you ask for them,
# and compares them with the paper's numbers. :doc:`/results/omniglot` has the result.
