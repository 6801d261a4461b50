"""The floor: the two networks of a CSN on the same examples, without adaptation. Costs are ratios to its time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from csn.core.model import CSN
from csn.episode import Episode
from csn.learner import EpisodeOutput
from csn.networks.lstm import LSTM


class Floor(nn.Module):
    """The two networks of a CSN, side by side."""

    def __init__(self, csn: CSN) -> None:
        super().__init__()
        self.base, self.key_function = csn.base, csn.embedding_network

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Every image through both networks; a loss that sends gradients through both."""
        n = episode.support.y.numel()
        x = torch.cat([episode.support.x.flatten(0, 1), episode.query.x.flatten(0, 1)])
        keys, logits = self.key_function(x), self.base(x).logits[n:]
        loss = F.cross_entropy(logits, episode.query.y.flatten()) + keys.square().mean()
        return EpisodeOutput(loss, logits.unflatten(0, episode.query.y.shape))


class SentenceFloor(nn.Module):
    """An nn.LSTM of the same size instead of an adaLSTM, and the key function."""

    def __init__(self, csn: CSN) -> None:
        super().__init__()
        assert isinstance(csn.base, LSTM)
        units = csn.base.output.in_features
        self.embedding, self.key_function = csn.base.embedding, csn.key_function
        self.lstm = nn.LSTM(self.embedding.size, units, len(csn.base.layers), batch_first=True)
        self.output = nn.Linear(units, csn.way)

    def forward(self, episode: Episode) -> EpisodeOutput:
        """Two passes, support and queries; a loss that sends gradients through both and through the keys."""
        loss, x = torch.zeros(()), torch.cat([episode.support.x.flatten(0, 1), episode.query.x.flatten(0, 1)])
        for examples in (episode.support, episode.query):
            states, _ = self.lstm(self.embedding(examples.x.flatten(0, 1)))
            logits = self.output(states[:, -1])
            loss = loss + F.cross_entropy(logits, examples.y.flatten())
        loss = loss + self.key_function(x).square().mean()
        return EpisodeOutput(loss, logits.unflatten(0, episode.query.y.shape))


def floor_of(csn: CSN) -> nn.Module:
    """The floor of a CSN's two networks. Its softmax layer lets gradients pass."""
    randomise_output(csn)
    return SentenceFloor(csn) if isinstance(csn.base, LSTM) else Floor(csn)


def randomise_output(csn: CSN) -> None:
    """Softmax layers start at 0, which would leave the hidden layers no gradient and eq. 2 nothing to do."""
    output = getattr(csn.base, "output", None)
    if isinstance(output, nn.Linear):
        nn.init.normal_(output.weight, std=0.2)
