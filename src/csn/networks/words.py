"""A key function for sentences that recognises words as well as meanings: (examples, T) -> key.

A learned key sees all out-of-vocabulary words as one token, although support and query show which words they are. This
key therefore appends fixed random codes of words to the learned key. Each part has length sqrt(its weight). Up to the
norms, the cosine of eq. 3 is then the learned cosine plus weighted counts of the words that two sentences share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.core.parts import KeyOptions, NetworkOptions, check_sizes, vocabulary_size
from csn.learner import InputSpec
from csn.networks.ffn import MLPKey
from csn.networks.lstm import SentenceNetworkOptions
from csn.networks.neighbours import neighbour_ids
from csn.networks.sentences import BLANK, PAD, WordEmbedding, check_sentences

CODE_SEED = 2018


class Pooling(nn.Module):
    """Attention poolings of a sentence: each is a mean of word embeddings, weighted by position and content.

    The weight of a word is softmax_t(u . E_t + w[distance to the blank]). PAD and BLANK have weight 0.
    """

    def __init__(self, embedding: int, poolings: int, *, farthest: int = 20) -> None:
        super().__init__()
        self.farthest = farthest
        self.content = nn.Linear(embedding, poolings, bias=False)
        near = -torch.arange(-farthest, farthest + 1).abs() / 4.0  # near words first
        self.position = nn.Parameter(near[:, None].repeat(1, poolings))
        nn.init.normal_(self.content.weight, std=0.1)

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """Ids (examples, T) and embeddings (examples, T, E) -> (examples, poolings * E), or 0 without any word."""
        steps = torch.arange(x.shape[1], device=x.device)
        distance = steps - (x == BLANK).int().argmax(1, keepdim=True)
        place = distance.clamp(-self.farthest, self.farthest) + self.farthest
        scores = self.content(embedded) + self.position[place]
        words = ((x != PAD) & (x != BLANK)).unsqueeze(-1)
        weights = scores.masked_fill(~words, -torch.inf).softmax(1).masked_fill(~words, 0.0).nan_to_num()
        return torch.einsum("etp,etd->epd", weights, embedded).flatten(1)


class WordCodes(nn.Module):
    """Fixed random codes of words. The codes of two different words are almost orthogonal.

    Bit j of a code is the highest bit of a_j * id + b_j in 64-bit integers (multiply-shift hashing). Codes need no
    table, so words that never occur in the training text have codes too.
    """

    a: Tensor
    b: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        # Kept in the checkpoint, because a loaded learner is first built without values.
        generator = torch.Generator().manual_seed(CODE_SEED)
        limit = 2**62
        a, b = (torch.randint(-limit, limit, (size,), generator=generator, device="cpu") for _ in range(2))
        self.register_buffer("a", 2 * a + 1)
        self.register_buffer("b", b)

    def forward(self, ids: Tensor) -> Tensor:
        """(...) -> (..., size), each number 1 or -1."""
        return 1.0 - 2.0 * (ids.unsqueeze(-1) * self.a + self.b < 0).to(self.a.dtype).float()


class WordKey(nn.Module):
    """A learned key and, in evaluation, codes that identify words.

    The learned key is a perceptron over the words next to the blank plus a linear map of attention poolings. There are
    three codes: of the unknown words next to the blank, of the known words next to the blank, and of the unknown words
    anywhere. Next to the blank, a code also depends on the side of the blank. Training text has no unknown words, so
    the codes are 0 in training.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        size: int = 128,
        codes: int = 256,
        code_weights: tuple[float, float, float] = (0.6, 0.2, 0.1),
        neighbours: int = 2,
        poolings: int = 4,
        embedding: int = 100,
        units: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if neighbours < 1 or poolings < 1 or codes < 1:
            raise ValueError(
                f"neighbours, poolings and codes must be 1 or more, got {neighbours}, {poolings} and {codes}"
            )
        if len(code_weights) != 3 or min(code_weights) < 0:
            raise ValueError(f"code_weights must be three numbers of 0 or more, got {code_weights}")
        self.neighbours, self.code_weights = neighbours, code_weights
        self.embedding = WordEmbedding(vocabulary, embedding, dropout=dropout)
        self.layers = MLPKey(2 * neighbours * embedding, size=size, units=units, layers=layers)
        self.pooling = Pooling(embedding, poolings)
        self.pooled = nn.Linear(poolings * embedding, size, bias=False)
        self.codes = WordCodes(codes)

    def forward(self, x: Tensor) -> Tensor:
        """(examples, T) -> (examples, size + 3 * codes)."""
        check_sentences(x, self.embedding.vocabulary)
        learned = self.layers(self.embedding(neighbour_ids(x, self.neighbours)))
        learned = learned + self.pooled(self.pooling(x, self.embedding(x)))
        if self.training:
            return F.pad(learned, (0, 3 * self.codes.a.numel()))
        return torch.cat([F.normalize(learned, dim=-1), *self._code_parts(x)], dim=-1)

    def _code_parts(self, x: Tensor) -> list[Tensor]:
        """Sum the codes of each kind, (examples, codes), and scale the sum to sqrt(weight). It is 0 without a word."""
        neighbours = neighbour_ids(x, 1)
        places = torch.arange(neighbours.shape[1], device=x.device)
        bound = self.codes(neighbours * 2 + places)  # a word has different codes before and after the blank
        anywhere = self.codes(2 * x)
        parts = [
            (bound * (neighbours < 0).unsqueeze(-1)).sum(1),
            (bound * (neighbours > 0).unsqueeze(-1)).sum(1),
            (anywhere * (x < 0).unsqueeze(-1)).sum(1),
        ]
        return [F.normalize(part, dim=-1) * weight**0.5 for part, weight in zip(parts, self.code_weights, strict=True)]


@dataclass(frozen=True)
class WordKeyOptions(KeyOptions):
    """A learned key of the words around the blank, and codes that tell which words two sentences share.

    learned: numbers in the learned key.
    codes: numbers in each of the three codes.
    code_weights: weights of unknown words next to the blank, of known ones, and of unknown words anywhere.
    neighbours: words on either side of the blank that the perceptron reads.
    poolings: attention poolings over the sentence.
    layers: layers of the perceptron.
    """

    name: ClassVar[str] = "words"
    learned: int = 128
    codes: int = 256
    code_weights: tuple[float, float, float] = (0.6, 0.2, 0.1)
    neighbours: int = 2
    poolings: int = 4
    layers: int = 1

    @property
    def size(self) -> int:  # type: ignore[override]
        """Numbers in a key: the learned ones and three codes."""
        return self.learned + 3 * self.codes

    def build(self, network: NetworkOptions, spec: InputSpec) -> WordKey:
        """Build the key function. It has its own embeddings, as large as those of the network."""
        check_sizes(self, "learned", "codes", "neighbours", "poolings", "layers")
        vocabulary = vocabulary_size(spec, f"key {self.name}")
        if not isinstance(network, SentenceNetworkOptions):
            raise ValueError(f"key {self.name} needs a network that embeds words (lstm, lstm-ffn), got {network.name}")
        options = dict(vars(self))
        return WordKey(
            vocabulary,
            size=options.pop("learned"),
            embedding=network.embedding,
            dropout=network.embedding_dropout,
            **options,
        )
