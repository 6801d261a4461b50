"""Compare csn on a frozen sentence encoder with SetFit, which fine-tunes the encoder for each task (intents).

    python benchmarks/finetuning.py --tasks 10 --out results/encoders/finetuning.json
    python benchmarks/finetuning.py --table results/encoders/finetuning.json      # the table of docs/encoders.md

Tunstall et al. (2022), Efficient Few-Shot Learning Without Prompts: each sentence gets 20 pairs within its class and
20 pairs with other classes. The loss is the squared error of their cosine to 1 or 0. One pass in batches of 16 pairs
uses AdamW at 2e-5 with a linear schedule. Logistic regression on the new vectors follows. This program uses plain
torch, and the same weights that csn reads. A class of one sentence is paired with itself. `seconds` is the processor
time to learn one task. Answering takes the same time for both.
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.encoders.text import SentenceEncoder
from csn.classifier.heads import LogisticHead
from csn.engine.checkpoint import write_atomically
from csn.engine.evaluate import summarise
from csn.engine.origin import origin
from csn.experiments.records.files import json_bytes
from encoded_sets import arguments, sentences
from encoders import QUERIES, SEED, auroc

PAIRS, BATCH, RATE, WARM_UP = 20, 16, 2e-5, 0.1
UNKNOWN = 40
SETTINGS = ((5, 1), (5, 5))


def pairs_of(y: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int, float]]:
    """Pairs (one, other, 1 if they have the same class), `PAIRS` times for every sentence, in random order."""
    found = []
    for i, label in enumerate(y):
        same = [j for j in np.flatnonzero(y == label) if j != i] or [i]
        found += [(i, int(j), 1.0) for j in rng.choice(same, PAIRS)]
        found += [(i, int(j), 0.0) for j in rng.choice(np.flatnonzero(y != label), PAIRS)]
    return [found[k] for k in rng.permutation(len(found))]


def fine_tuned(texts: list[str], y: np.ndarray, rng: np.random.Generator) -> SentenceEncoder:
    """Fine-tune an encoder so that sentences of one class get similar vectors."""
    encoder = SentenceEncoder()
    pairs = pairs_of(y, rng)
    steps = -(-len(pairs) // BATCH)
    optimizer = torch.optim.AdamW(encoder.network.parameters(), lr=RATE)
    warm = max(1, round(WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min((k + 1) / warm, (steps - k) / max(1, steps - warm))
    )
    for start in range(0, len(pairs), BATCH):
        one, other, same = zip(*pairs[start : start + BATCH], strict=True)
        used = sorted({*one, *other})
        vectors = encoder.vectors([texts[i] for i in used])
        place = {i: k for k, i in enumerate(used)}
        cosine = (vectors[[place[i] for i in one]] * vectors[[place[i] for i in other]]).sum(-1)
        loss = F.mse_loss(cosine, torch.tensor(same))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return encoder


def one_task(way: int, shot: int, index: int) -> dict[str, list[float]]:
    """Accuracy, AUROC of sentences out of scope, and seconds of learning, by model."""
    texts, labels, out = sentences()
    y_all, rng = np.array(labels), np.random.default_rng([SEED, way, shot, index])
    chosen = rng.permutation(np.unique(y_all))[:way]
    places = [rng.permutation(np.flatnonzero(y_all == label))[: shot + QUERIES] for label in chosen]
    support = [texts[i] for place in places for i in place[:shot]]
    queries = [texts[i] for place in places for i in place[shot:]]
    unknown = [out[i] for i in rng.permutation(len(out))[:UNKNOWN]]
    y, truth = np.repeat(np.arange(way), shot), np.repeat(np.arange(way), QUERIES)

    started = time.process_time()
    classifier = FewShotClassifier(encoder="text", cache=False).fit(support, y)
    right = float((classifier.predict(queries) == truth).mean())
    seconds = time.process_time() - started
    sure, unsure = (torch.from_numpy(classifier.similarity(x)) for x in (queries, unknown))
    found = {"csn": [right, auroc(sure, unsure), seconds]}

    started = time.process_time()
    encoder, head = fine_tuned(support, y, rng), LogisticHead()
    task = head.describe(torch.from_numpy(encoder(support)), torch.from_numpy(y), way)

    def probabilities(x: list[str]) -> Tensor:
        return head.predict(torch.from_numpy(encoder(x)), task).softmax(-1)

    answers = probabilities(queries)
    seconds = time.process_time() - started
    right = float((answers.argmax(-1).numpy() == truth).mean())
    found["fine-tuned"] = [right, auroc(answers.amax(-1), probabilities(unknown).amax(-1)), seconds]
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown: accuracy, area under the curve of unknown sentences, and seconds of a task."""
    lines = ["| intents | tasks | model | accuracy, % | unknown, % | seconds |", "|---" * 6 + "|"]
    for row in rows:
        for model, found in row["tuned"].items():
            accuracy, unknown = (f"{100 * found[part][0]:.1f}" for part in ("accuracy", "unknown"))
            setting = f"{row['way']}-way {row['shot']}-shot | {row['tasks']}"
            lines.append(f"| {setting} | {model} | {accuracy} | {unknown} | {found['seconds']:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print. Write a file if the command asks for one."""
    options = arguments(__doc__, tasks=10).parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))["rows"]), end="")
        return
    torch.set_num_threads(1)
    rows = []
    for way, shot in SETTINGS:
        found = [one_task(way, shot, index) for index in range(options.tasks)]
        models = {}
        for model in found[0]:
            accuracy, unknown, seconds = (list(part) for part in zip(*(one[model] for one in found), strict=True))
            models[model] = {"accuracy": summarise(accuracy), "unknown": summarise(unknown)}
            models[model] |= {"seconds": float(np.median(seconds)), "accuracies": accuracy}  # type: ignore[dict-item]
        rows.append({"set": "intents", "way": way, "shot": shot, "tasks": options.tasks, "tuned": models})
        Console(width=150).print(rows[-1])
    if options.out:
        about = {"queries": QUERIES, "unknown": UNKNOWN, "rows": rows} | origin("python benchmarks/finetuning.py")
        write_atomically(options.out, json_bytes(about))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
