"""The weights that come with the package: their size, their thresholds, and tasks that were saved with earlier ones."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from csn.classifier.classifier import FewShotClassifier
from csn.classifier.pretrained import open_shipped, shipped_threshold
from csn.data.images.strokes import load_strokes
from csn.engine.checkpoint import load_checkpoint, save_checkpoint


@pytest.fixture(scope="module")
def drawings() -> tuple[np.ndarray, list[str]]:
    """Three drawings each of four generated characters that no weights were trained on."""
    classes = load_strokes(alphabets=5, characters=4).splits["test"]
    rows = [20 * c + i for c in range(4) for i in range(3)]
    return classes.x[rows, 0].numpy(), [name for name in "abcd" for _ in range(3)]


def test_they_are_small_and_read_as_ordinary_numbers(shipped_path):
    assert shipped_path.stat().st_size <= 3_000_000
    tensors, _ = load_checkpoint(shipped_path)
    learner, spec = open_shipped("characters")
    assert spec.shape == (1, 28, 28)
    assert {str(p.dtype) for p in learner.parameters()} == {"torch.float32"}
    assert {str(t.dtype) for t in tensors.values() if t.ndim > 1} == {"torch.float16"}


@pytest.fixture
def shipped_path():
    from importlib import resources

    with resources.as_file(resources.files("csn.classifier") / "weights" / "characters.safetensors") as path:
        yield path


@pytest.mark.parametrize("head", ["csn", "learner"])
def test_the_calibrated_threshold_is_that_of_so_many_examples(drawings, head):
    x, y = drawings
    one, two, five = (shipped_threshold("characters", shots) for shots in (1, 2, 5))
    assert 0 < one < two < five < 1
    assert shipped_threshold("characters", 4) == two
    assert shipped_threshold("characters", 100) == shipped_threshold("characters", 10) > five
    classifier = FewShotClassifier("characters", head=head, unknown_threshold="calibrated").fit(x, y)
    assert classifier.threshold() == two  # three examples a class: what two have holds
    assert classifier.blank().fit(x[::3], y[::3]).threshold() == one


@pytest.mark.parametrize("head", ["csn", "learner"])
def test_a_task_of_earlier_weights_is_described_again(drawings, tmp_path, head):
    x, y = drawings
    learned = FewShotClassifier("characters", head=head, unknown_threshold=0.123).fit(x, y)
    learned.save(tmp_path / "task.csn")
    assert FewShotClassifier.load(tmp_path / "task.csn").threshold() == 0.123
    tensors, about = load_checkpoint(tmp_path / "task.csn")
    changed = {name: -t if name == "keys" or t.is_floating_point() else t for name, t in tensors.items()}
    save_checkpoint(tmp_path / "older.csn", changed, about | {"fingerprint": "0" * 64, "way": 7})
    with pytest.warns(UserWarning, match=r"older.csn was made with earlier weights.*described again"):
        again = FewShotClassifier.load(tmp_path / "older.csn")
    assert again.predict_proba(x).tobytes() == learned.predict_proba(x).tobytes()
    assert again.threshold() == shipped_threshold("characters", 3)  # a number of other keys means nothing


def test_one_similarity_whatever_answers(drawings):
    x, y = drawings
    head, layers = (FewShotClassifier("characters", head=head, unknown_threshold="own") for head in ("csn", "learner"))
    for many in (slice(None), slice(None, None, 3)):
        found = [classifier.fit(x[many], y[many]).similarity(x) for classifier in (head, layers)]
        np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    assert layers.fit(x, y).threshold() == pytest.approx(head.fit(x, y).threshold(), abs=1e-5)
    before = layers.similarity(x)
    layers.partial_fit(x[:1, ::-1], ["other"]).forget("other")
    assert layers.similarity(x).tobytes() == before.tobytes()


def test_a_number_of_the_network_s_earlier_score_is_replaced(drawings, tmp_path):
    x, y = drawings
    FewShotClassifier("characters", head="learner", unknown_threshold=0.451).fit(x, y).save(tmp_path / "task.csn")
    tensors, about = load_checkpoint(tmp_path / "task.csn")
    del about["unknown_score"]
    save_checkpoint(tmp_path / "older.csn", tensors, about)
    with pytest.warns(UserWarning, match=r'earlier csn: its unknown_threshold 0.45.*"calibrated" is used instead'):
        older = FewShotClassifier.load(tmp_path / "older.csn")
    assert older.threshold() == shipped_threshold("characters", 3)


def test_weights_of_ones_own_are_not_replaced_by_others(drawings, tmp_path):
    learner, _ = open_shipped("characters")
    FewShotClassifier(learner=learner).fit(*drawings).save(tmp_path / "task.csn")
    next(learner.parameters()).data += 0.1
    with pytest.raises(ValueError, match="other weights"):
        FewShotClassifier.load(tmp_path / "task.csn", learner=learner)
