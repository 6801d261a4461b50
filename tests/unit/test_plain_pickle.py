"""Pickles that attack: each is read in a process of its own, for a mistake here ends the process that makes it."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest

from csn.data.images.plain_pickle import read_plain_pickle

READ = """
import faulthandler, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from csn.data.images.plain_pickle import read_plain_pickle
try:
    found = read_plain_pickle(Path(sys.argv[1]))
except ValueError as error:
    print("refused:", error)
else:
    repr(found)  # a forged array of objects is harmless until somebody looks at it
    print("read")
"""

BYTES8 = b"C\x08" + struct.pack("<Q", 0x4141414141414141)  # the address of an object, as the file wishes
OBJECTS = b"cnumpy\ndtype\n(X\x01\x00\x00\x00OtR"  # numpy.dtype("O")

HOSTILE = {
    # numpy.ndarray((1,), "O", eight bytes): an array of objects over bytes of the file's choice
    "objects over bytes": b"\x80\x03cnumpy\nndarray\n(K\x01\x85X\x01\x00\x00\x00O" + BYTES8 + b"tR.",
    "objects from a buffer": b"\x80\x03cnumpy.core.numeric\n_frombuffer\n("
    + BYTES8
    + OBJECTS
    + b"K\x01\x85X\x01\x00\x00\x00CtR.",
    # a state that makes a byte an object: dtype.__setstate__ believes the flags and sizes it is given
    "a dtype with a forged state": b"\x80\x03cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
    b"(K\x01K\x01\x85cnumpy\ndtype\n(X\x02\x00\x00\x00u1K\x00K\x01tR(K\x03X\x01\x00\x00\x00|NNNK\x08K\x08K\x3ftb\x89"
    + BYTES8
    + b"tb.",
    "an array over too few bytes": b"\x80\x03cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
    b"(K\x01J\x00\x00\x00\x70\x85cnumpy\ndtype\n(X\x02\x00\x00\x00u1K\x00K\x01tR\x89C\x00tb.",
    "a dtype of objects": b"\x80\x03" + OBJECTS + b".",
    "a dtype of long texts": b"\x80\x03cnumpy\ndtype\n(X\x0b\x00\x00\x00U2000000000tR.",
    "a scalar of objects": b"\x80\x03cnumpy.core.multiarray\nscalar\n(" + OBJECTS + BYTES8 + b"tR.",
    "attributes of a shared function": b"\x80\x03c_codecs\nencode\n}X\x04\x00\x00\x00evilK\x01sb.",
    "attributes of a shared class": b"\x80\x03ccollections\nOrderedDict\nN}X\x04\x00\x00\x00evilK\x01s\x86b.",
    "a memo of a thousand million places": b"\x80\x03Nr\xff\xff\xff\x3fcos\nsystem\n.",
    "bytes of an exabyte": b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b"x.",
    "a byte array of 16 GB": b"\x80\x05\x96" + struct.pack("<Q", 2**34) + b"x.",
    "a key that takes for ever to hash": b"\x80\x04)\x94"
    + b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(60))
    + b"}h\x3cNs.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle_is_refused_by_a_process_that_lives(tmp_path, what):
    file = tmp_path / "hostile.pkl"
    file.write_bytes(HOSTILE[what])
    ran = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.partition(":")[0]) == (0, "refused"), ran.stdout + ran.stderr


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(6, dtype="<f8").reshape(3, 2).T,
        np.array([True, False]),
        np.zeros((2, 0, 3), dtype=np.uint8),
        np.array(7, dtype=np.int16),
    ],
    ids=["other byte order", "Fortran's order", "truth values", "nothing", "no axis"],
)
def test_arrays_come_back_with_dtype_shape_and_values(tmp_path, array, protocol):
    file = tmp_path / "plain.pkl"
    file.write_bytes(pickle.dumps({"a": array, "again": [array, array.dtype]}, protocol=protocol))
    found = read_plain_pickle(file)
    for copy in (found["a"], found["again"][0]):
        assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
        assert copy.tolist() == array.tolist()
    assert found["again"][1] == array.dtype


def test_what_python_2_wrote_is_read(tmp_path):
    file = tmp_path / "old.pkl"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    state = (
        b"(K\x01K\x02\x85cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    pairs = b"](](U\x01aK\x05e](U\x01b" + array + state + b"\x89U\x02\x07\xfftbee"
    file.write_bytes(b"\x80\x02ccollections\nOrderedDict\n" + pairs + b"\x85R.")
    found = read_plain_pickle(file)
    assert isinstance(found, OrderedDict)
    assert found["a"] == 5
    assert found["b"].tolist() == [7, 255]
