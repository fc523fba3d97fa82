# SPDX-License-Identifier: Apache-2.0
"""Arrays in and out of the Python package: what is read without a copy, what is rejected, and what is kept alive and released."""

import array
import ctypes
import gc
import threading

import ml_dtypes
import numpy as np
import pytest
import regard

from leaks import leaked


def given(*, seed=0, shape=(1, 1, 2, 8), dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


KEY, VALUE = given(seed=1), given(seed=2)
PLAIN = regard.attention(given(), KEY, VALUE)


# ---- the buffer protocol

class Subclass(np.ndarray):
    pass


LAYOUTS = {
    "Fortran order": lambda x: np.asfortranarray(x),
    "negative strides": lambda x: np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
    "gaps": lambda x: np.repeat(x, 3, -1)[..., ::3],
    "misaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
    "subclass": lambda x: x.view(Subclass),
    "little-endian by name": lambda x: x.astype("<f4"),
    "memoryview": lambda x: memoryview(x),
    "bytes": lambda x: memoryview(x.tobytes()).cast("f", x.shape),
    "array.array": lambda x: memoryview(memoryview(array.array("f", x.ravel().tolist())).cast("B")).cast("f", x.shape),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_memory_layout_gives_the_same_bits(name):
    assert np.array_equal(regard.attention(LAYOUTS[name](given()), KEY, VALUE), PLAIN)
    assert np.array_equal(regard.attention(given(), LAYOUTS[name](KEY), LAYOUTS[name](VALUE)), PLAIN)


def test_stride_zero_broadcasts():
    key = np.broadcast_to(KEY[:, :, :1], KEY.shape)
    value = np.broadcast_to(VALUE[:, :, :1], VALUE.shape)
    np.testing.assert_allclose(regard.attention(given(), key, value), value, rtol=1e-6)


UNSUPPORTED = {
    "object": (lambda x: x.astype(object), ValueError, "elements of format 'O'"),
    "complex": (lambda x: x.astype(complex), ValueError, "type complex128"),
    "big-endian": (lambda x: x.astype(">f4"), ValueError, "elements of format '>f'"),
    "integers": (lambda x: x.astype(int), ValueError, "type int64"),
    "strings": (lambda x: x.astype(str), ValueError, "elements of format"),
    "records": (lambda x: np.zeros(x.shape, "f4,f4"), ValueError, "elements of format"),
    "field of records": (lambda x: np.zeros(x.shape, "f4,i1")["f0"], ValueError, "stride"),
    "dates": (lambda x: x.astype("datetime64[s]"), TypeError, "type datetime64"),
    "0-d": (lambda x: np.float32(1).reshape(()), ValueError, "0 axes"),
    "NumPy scalar": (lambda x: np.float32(1), ValueError, "0 axes"),
    "three axes": (lambda x: x[0], ValueError, "has 3 axes in shape (1, 2, 8); expected 4, as in"),
    "masked": (lambda x: np.ma.masked_array(x, x > 0), TypeError, "masked array"),
    "long double": (lambda x: x.astype(np.longdouble), ValueError, "elements of format 'g'"),
    "float8": (lambda x: x.astype(ml_dtypes.float8_e4m3fn), TypeError, "float8_e4m3fn"),
    "list": (lambda x: x.tolist(), TypeError, "is of type list"),
    "None": (lambda x: None, TypeError, "is of type NoneType"),
    "text": (lambda x: "q", TypeError, "is of type str"),
    "bytes": (lambda x: x.tobytes(), ValueError, ("type uint8", "1 axis")),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_unsupported_inputs_are_rejected(name, index):
    make, error, words = UNSUPPORTED[name]
    arguments = [given(), KEY, VALUE]
    arguments[index] = make(arguments[index])
    with pytest.raises(error) as rejection:
        regard.attention(*arguments)
    text = str(rejection.value)
    assert any(word in text for word in ([words] if isinstance(words, str) else words)), text
    assert text.startswith("attention_forward: " + ("query", "key", "value")[index]), text


def test_outputs_that_cannot_be_written_are_rejected():
    locked = np.empty_like(PLAIN)
    locked.flags.writeable = False
    overlapping = given()
    for out, error, words in [(locked, ValueError, "out is read-only"), (bytes(64), ValueError, "read-only"),
                              (np.broadcast_to(np.float32(0), PLAIN.shape), ValueError, "read-only"),
                              (overlapping, ValueError, "context overlaps query"),
                              (np.empty(PLAIN.shape, "float64"), ValueError, "float32"),
                              (np.empty(PLAIN.shape, "int32"), ValueError, "int32"), ([0.0], TypeError, "list")]:
        with pytest.raises(error) as rejection:
            regard.attention(overlapping, KEY, VALUE, out=out)
        assert words in str(rejection.value), str(rejection.value)


def test_results_for_plain_buffers_are_arrays():
    result = regard.attention(memoryview(given()), KEY, VALUE)
    assert np.array_equal(np.asarray(memoryview(result)), PLAIN)
    assert np.array_equal(np.from_dlpack(result), PLAIN)


# ---- DLPack, from a producer whose every field can be set

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Producer:
    """Exports `source` through DLPack; `change` edits the structure before the export."""

    def __init__(self, source, change=lambda managed: None, versioned=True, keywords=True, deleter=True):
        self.source, self.change, self.versioned, self.keywords = source, change, versioned, keywords
        self.deleted, self.capsules, self.requests = 0, [], []
        self.deleter = DELETER(self._delete) if deleter else None

    def _delete(self, _):
        self.deleted += 1

    def __dlpack__(self, **keywords):
        self.requests.append(keywords)
        if keywords and not self.keywords:
            raise TypeError("__dlpack__() takes no keyword arguments")
        source = self.source
        self.managed = Versioned(1, 1) if self.versioned else Managed()
        tensor = self.managed.tensor
        tensor.data, tensor.device_type, tensor.rank, tensor.lanes = source.ctypes.data, 1, source.ndim, 1
        kind = "bfloat" if source.dtype.name == "bfloat16" else source.dtype.kind
        tensor.code, tensor.bits = {"i": 0, "f": 2, "bfloat": 4, "b": 6}[kind], source.dtype.itemsize * 8
        self.shape = (ctypes.c_int64 * source.ndim)(*source.shape)
        self.strides = (ctypes.c_int64 * source.ndim)(*(s // source.dtype.itemsize for s in source.strides))
        tensor.shape, tensor.strides = self.shape, self.strides
        if self.deleter:
            self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        self.change(self.managed)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        self.capsules.append(new_capsule(ctypes.addressof(self.managed), name, None))
        return self.capsules[-1]


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("keywords", [True, False])
@pytest.mark.parametrize("deleter", [True, False])
def test_dlpack_exports_are_read_in_place_and_released(versioned, keywords, deleter):
    query = Producer(given(), versioned=versioned, keywords=keywords, deleter=deleter)
    assert np.array_equal(memoryview(regard.attention(query, KEY, VALUE)), PLAIN)
    assert query.deleted == (1 if deleter else 0)
    assert query.requests[0] == {"max_version": (1, 1), "copy": False} and len(query.requests) == (1 if keywords else 2)
    assert capsule_name(query.capsules[0]) == (b"used_dltensor_versioned" if versioned else b"used_dltensor")


def test_dlpack_supports_strides_offsets_and_outputs():
    wide = np.zeros((1, 1, 4, 16), np.float32)
    wide[:, :, ::2, ::2] = given()
    query = Producer(wide[:, :, ::2, ::2])
    query.change = lambda managed: (setattr(managed.tensor, "data", managed.tensor.data - 12),
                                    setattr(managed.tensor, "byte_offset", 12))
    out = np.empty_like(PLAIN)
    regard.attention(query, KEY, VALUE, out=Producer(out))
    assert np.array_equal(out, PLAIN)
    out[:] = 0
    regard.attention(Producer(given(), lambda managed: setattr(managed.tensor, "strides", None)), KEY, VALUE, out=out)
    assert np.array_equal(out, PLAIN)


def test_dlpack_supports_bfloat16():
    narrow = [x.astype(ml_dtypes.bfloat16) for x in (given(), KEY, VALUE)]
    expected = regard.attention(*narrow)
    out = np.zeros_like(expected)
    regard.attention(*map(Producer, narrow), out=Producer(out))
    assert np.array_equal(out.view(np.uint16), expected.view(np.uint16)) and out.any()


def without_memory(managed):
    managed.tensor.data = None


BAD_EXPORTS = {
    "another device": (lambda m: setattr(m.tensor, "device_type", 2), "device of DLPack type 2"),
    "version 2": (lambda m: setattr(m, "major", 2), "DLPack version 2.1; expected 1"),
    "lanes": (lambda m: setattr(m.tensor, "lanes", 2), "2 lanes"),
    "no memory": (without_memory, "no memory for shape (1, 1, 2, 8)"),
    "negative rank": (lambda m: setattr(m.tensor, "rank", -1), "-1 axes"),
    "too many axes": (lambda m: setattr(m.tensor, "rank", 200), "200 axes"),
    "no shape": (lambda m: setattr(m.tensor, "shape", None), "without a shape"),
    "negative extent": (lambda m: m.tensor.shape.__setitem__(2, -1), "a negative extent in shape (1, 1, -1, 8)"),
}


@pytest.mark.parametrize("name", BAD_EXPORTS)
def test_an_unusable_export_is_rejected_and_not_consumed(name):
    change, words = BAD_EXPORTS[name]
    query = Producer(given(), change)
    with pytest.raises(BufferError) as rejection:
        regard.attention(query, KEY, VALUE)
    assert words in str(rejection.value), str(rejection.value)
    assert capsule_name(query.capsules[0]) == b"dltensor_versioned" and query.deleted == 0


def test_a_capsule_can_be_used_only_once():
    capsule = Producer(given()).__dlpack__()
    producer = Producer(given())
    capsule = producer.__dlpack__()
    assert np.array_equal(memoryview(regard.attention(capsule, KEY, VALUE)), PLAIN)
    with pytest.raises(BufferError, match="used_dltensor_versioned"):
        regard.attention(capsule, KEY, VALUE)
    assert producer.deleted == 1


def test_a_read_only_export_is_rejected_as_output():
    out = Producer(np.empty_like(PLAIN), lambda managed: setattr(managed, "flags", 1))
    with pytest.raises(ValueError, match="out is read-only"):
        regard.attention(given(), KEY, VALUE, out=out)
    assert out.deleted == 1


def test_an_export_is_released_after_an_error():
    query = Producer(given())
    with pytest.raises(ValueError):
        regard.attention(query, KEY[..., :3], VALUE)
    assert query.deleted == 1


def test_errors_of_a_producer_are_passed_on():
    class Broken:
        def __dlpack__(self, **keywords):
            raise RuntimeError("no memory today")

    class Empty:
        def __dlpack__(self, **keywords):
            return 3

    with pytest.raises(RuntimeError, match="no memory today"):
        regard.attention(Broken(), KEY, VALUE)
    with pytest.raises(BufferError, match="no capsule"):
        regard.attention(Empty(), KEY, VALUE)


# ---- kept alive while in use, then released

def test_memory_is_kept_alive_during_a_call():
    memory = bytearray(4 * 2000 * 64)
    zeros = np.zeros((1, 1, 2000, 64), np.float32)

    class Query:
        """Only the call exports its memory, from __dlpack__ on."""

        def __dlpack__(self, **keywords):
            capsule = np.frombuffer(memory, np.float32).reshape(1, 1, 2000, 64).__dlpack__(**keywords)
            exported.set()
            return capsule

    exported = threading.Event()
    thread = threading.Thread(target=regard.attention, args=(Query(), zeros, zeros))
    thread.start()
    assert exported.wait(30)
    with pytest.raises(BufferError):
        memory.extend(b"0000")
    thread.join(60)
    assert not thread.is_alive()
    gc.collect()
    memory.extend(b"let go")


def test_calls_leak_no_references_and_no_memory():
    import resource

    query, out = given(), np.empty_like(PLAIN)
    mask, lengths = np.ones((2, 2), bool), [2]

    def once():
        regard.attention(query, KEY, VALUE, out=out, mask=mask, key_lengths=lengths, causal="top_left", return_lse=True)
        regard.attention(query, KEY, VALUE, return_weights=True, window=(1, None), scale=0.5)
        for wrong in (dict(color=1), dict(mask=out), dict(window=(-1, 1)), dict(causal="no")):
            try:
                regard.attention(query, KEY, VALUE, **wrong)
            except (TypeError, ValueError):
                pass
        regard.plan(regard.attention, query, KEY, VALUE)

    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    references, blocks = leaked(once, 3000, [query, KEY, VALUE, out, mask, lengths, None])
    assert not any(references) and abs(blocks) < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 4096
