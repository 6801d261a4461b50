"""A few inputs of every target in every run of the tests; `make fuzz MINUTES=60` goes on."""

from __future__ import annotations

import contextlib
import warnings

import pytest

pytest.importorskip("fastapi", reason='the service is a target: pip install "csn[service]"')

from edits import KINDS, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import TARGETS, seeds_of

EDITS = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 2**16)), max_size=6)


@pytest.fixture(autouse=True)
def installed(request):
    """Skip a target that cannot be attacked here."""
    if why := TARGETS[request.getfixturevalue("name")].missing():
        pytest.skip(why)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_old_crashes_are_read_or_refused(name):
    for content in seeds_of(name):
        TARGETS[name].attack(content)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused(name):
    seeds = seeds_of(name)

    @settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(seeds) - 1), EDITS)
    def attack(number, edits):
        TARGETS[name].attack(damaged(seeds[number], edits))

    attack()


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_reads_a_whole_seed(name):
    """So that an attack is on the reader, and not on a door that is always shut."""
    good = []
    for content in seeds_of(name):
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[name].read(content)
            good.append(content)
    assert good
