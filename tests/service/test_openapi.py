"""The service against its own description; `python tests/service/api_attack.py --cases 10000` goes on."""

from __future__ import annotations

import pytest

pytest.importorskip("schemathesis", reason='the API is attacked where this is installed: pip install "csn[fuzz]"')

from api_attack import attack

pytestmark = pytest.mark.filterwarnings("ignore:.*are not drawings of ink on plain paper")  # and are learned anyway


def test_every_answer_is_one_that_the_description_knows(tmp_path):
    statuses = attack(tmp_path, cases=80, number=0)
    assert statuses.total() >= 80
    assert {"200", "201", "404", "422"} <= set(statuses), "it got behind the doors"
