"""
A new base learner, as a plug-in
================================

Any network can have conditionally shifted neurons. This tutorial writes one, trains it for some seconds, and then
makes a plug-in of it, so that ``csn train`` knows it by name.
"""

# %%
# The network
# -----------
# A base learner has two parts. The *stem* holds the layers without shifts. The *head* holds those with shifts; it
# returns the logits and the preactivations of every shifted layer, the output layer last. This one mixes the rows of
# an image, and then its columns.

from dataclasses import dataclass
from typing import Any, ClassVar

import matplotlib.pyplot as plt
import torch
from torch import nn

import csn
from csn.core.base_learner import he_initialise, start_uniform
from csn.core.neurons import RELU, shifted_activation, shifted_logits
from csn.core.parts import NetworkOptions
from csn.networks.cnn import CNNOptions


class Mixer(csn.BaseLearner):
    """Rows and columns mixed by turns; the hidden layer at every place and the outputs are shifted."""

    def __init__(self, side: int, way: int, units: int) -> None:
        super().__init__()
        self.side, self.way, self.activations, self.shift_rule = side, way, (RELU,), "squashed"
        self.rows, self.columns = nn.Linear(side, units), nn.Linear(side, units)
        self.hidden = nn.Linear(units, units)
        self.output = nn.Linear(units * units, way)
        he_initialise(self.modules())
        start_uniform(self.output)

    def check_input(self, x: torch.Tensor) -> None:
        """Square pictures with ink on paper."""
        if x.shape[1:] != (1, self.side, self.side):
            raise ValueError(f"Mixer reads pictures of 1 x {self.side} x {self.side}, got {tuple(x.shape[1:])}")

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        """(examples, 1, side, side) -> (examples, units, units)."""
        return torch.relu(self.columns(torch.relu(self.rows(x[:, 0])).mT))

    def head(self, features: torch.Tensor, shifts: Any = None) -> csn.BaseOutput:
        """Eq. 1 in the hidden layer and the output."""
        of_hidden, of_output = shifts or (None, None)
        a = self.hidden(features)
        h = features + shifted_activation(a, of_hidden, RELU, self.shift_rule)
        logits = self.output(h.flatten(1))
        return csn.BaseOutput(shifted_logits(logits, of_output), (a, logits))


# %%
# Train it
# --------
# ``csn.build`` makes a CSN of it. Its key function is a small CNN of csn. The loop is an ordinary training loop.

torch.manual_seed(0)
data = csn.load_data("strokes")
key = CNNOptions(filters=16, norm="batch").key_function(data.input_spec, 32)
learner = csn.build(
    "csn", reads=data.input_spec, way=5, network=Mixer(28, 5, 32), key=key, conditioning="df", temperature=10.0
)
tasks = csn.EpisodeSource(data, "train", way=5, shot=1, queries=5, seed=0)
optimizer = torch.optim.Adam(learner.parameters(), lr=0.002)
losses = []
for step in range(150):
    loss = learner(tasks.batch(first=4 * step, tasks=4)).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))

figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.plot(losses)
axes.set(xlabel="step of four tasks", ylabel="loss", title="Training of the new base learner")

# %%
# Test it
# -------
# The test characters come from alphabets that training has not seen. Chance is 20 %.

test = csn.EpisodeSource(data, "test", way=5, shot=1, queries=5, seed=0).batch(first=0, tasks=100)
with torch.no_grad():
    logits = learner.eval()(test).logits
print(f"{100 * (logits.argmax(-1) == test.query.y).float().mean():.1f} % of {test.query.y.numel()} queries are right")

# %%
# Make a plug-in of it
# --------------------
# A frozen dataclass names the options. csn builds the network from them, and the command line sets them.


@dataclass(frozen=True)
class MixerOptions(NetworkOptions):
    """A small mixer.

    units: numbers in a row and in a column.
    """

    name: ClassVar[str] = "mixer"
    base_class: ClassVar[type[Any]] = Mixer
    units: int = 32


# %%
# An entry point of your package leads from the name to the options:
#
# .. code-block:: toml
#
#    [project.entry-points."csn.networks"]
#    mixer = "my_package.mixer:MixerOptions"
#
# After ``pip install -e my_package`` csn knows the name:
#
# .. code-block:: console
#
#    $ csn train adacnn-df --data strokes --set network.name=mixer --set network.units=48
#
# ``examples/plugin`` is a complete package of this kind, with a network, a learner, a data set and a preset.
