# SPDX-License-Identifier: Apache-2.0
"""How the Python package behaves in a process: import, Ctrl-C, threads, fork, and exit of the interpreter."""

import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import regard

from leaks import leaked
from sentence_model import make_folder


def python(program, *arguments, **options):
    """Runs the program in a fresh interpreter and returns its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=100, check=False, **options)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_import_loads_no_array_library_starts_no_thread_and_changes_no_floating_point_state():
    # Arithmetic with subnormal numbers shows whether they are flushed to zero; the floating-point environment shows
    # all other changes.
    python("""
        import ctypes, os, sys
        before = set(sys.modules)
        fegetround = ctypes.CDLL("libm.so.6").fegetround
        state = (ctypes.c_char * 32)()
        fegetenv = ctypes.CDLL("libm.so.6").fegetenv
        fegetenv(state)
        control = bytes(state)[:4] + bytes(state)[28:]
        import regard
        fegetenv(state)
        assert bytes(state)[:4] + bytes(state)[28:] == control
        assert fegetround() == 0 and 5e-324 * 1.0 == 5e-324 and 1e-310 / 2 > 0
        assert len(os.listdir("/proc/self/task")) == 1
        loaded = {name.split(".")[0] for name in set(sys.modules) - before}
        assert loaded <= {"regard"} | set(sys.stdlib_module_names), loaded
        assert not {"numpy", "torch", "jax", "typing"} & loaded, loaded
    """)


def test_import_takes_less_than_50_milliseconds():
    # The fastest of ten runs hardly depends on other load; it takes about 10 ms.
    def milliseconds():
        done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import regard"], capture_output=True, text=True,
                              timeout=100, check=True)
        [line] = [line for line in done.stderr.splitlines() if line.split("|")[-1].rstrip() == " regard"]
        return int(line.split("|")[1]) / 1000

    times = [milliseconds() for _ in range(10)]
    assert min(times) < 50, times


# More than 2 · 10¹² operations, which take any single core many seconds.
@pytest.mark.parametrize("call", ["attention(x, x, x, num_threads=1)", "attention_with_statistics(x, x, x, num_threads=1)"])
def test_control_c_ends_a_long_call(call):
    program = textwrap.dedent(f"""
        import numpy, os, regard, signal, threading, time
        x = numpy.zeros((1, 64, 12000, 64), numpy.float32)
        pressed = []
        def press():
            time.sleep(0.5)
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=press, daemon=True).start()
        try:
            regard.{call}
            print("finished")
        except KeyboardInterrupt:
            print("stopped", time.monotonic() - pressed[0])
        small = numpy.ones((1, 1, 4, 8), numpy.float32)
        assert (regard.attention(small, small, small) == 1).all()
    """)
    assert python(program).startswith("stopped")


# Sends SIGINT a fraction of a second after a call began, and prints the CPU time that the call still takes. CPU time
# does not depend on other processes.
PRESS = """
    import os, regard, signal, threading, time
    pressed = []
    def press(after):
        def send():
            time.sleep(after)
            pressed.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=send, daemon=True).start()
    def ended(call):
        try:
            call()
        except KeyboardInterrupt:
            print(time.process_time() - pressed[-1], flush=True)
"""


def cpu_seconds_to_stop(program):
    return [float(line) for line in python(textwrap.dedent(PRESS) + textwrap.dedent(program)).splitlines()]


def test_control_c_ends_an_append_and_leaves_the_cache_unchanged():
    all_sequences, one = cpu_seconds_to_stop("""
        import numpy
        cache = regard.KvCache(num_kv_heads=4, head_size=64, capacity=200000, dtype="int8")
        some = numpy.ones((1, 4, 40, 64), numpy.float32)
        cache.append(some, some)
        many = numpy.ones((1, 4, 190000, 64), numpy.float32)
        press(0.1)
        ended(lambda: cache.append(many, many))
        press(0.1)
        ended(lambda: cache.append(many[0], many[0], sequence=0))
        assert cache.length() == 40
        again = regard.KvCache(num_kv_heads=4, head_size=64, capacity=200000, dtype="int8")
        again.append(some, some)
        for each in (cache, again):
            each.append(some, some)
        query = numpy.ones((1, 4, 1, 64), numpy.float32)
        assert (regard.attention_decode(query, cache, query_offset="bottom_right")
                == regard.attention_decode(query, again, query_offset="bottom_right")).all()
    """)
    assert all_sequences < 0.2 and one < 0.2


def test_control_c_ends_rendering_as_json_html_and_text():
    json, html, text = cpu_seconds_to_stop("""
        n, depth = 700, 8
        rows = [[float((i * 31 + d * 7) % 100) / 50 - 1 for d in range(depth)] for i in range(n)]
        explanation = regard.explain({"Q": rows, "K": rows, "V": rows})
        for write in (explanation.json, explanation.html, lambda: explanation.text(full=True)):
            begin = time.monotonic()
            write()
            press((time.monotonic() - begin) / 4)
            ended(write)
    """)
    assert json < 0.2 and html < 0.2 and text < 0.2


def test_control_c_ends_tokenization(tmp_path):
    many, one = cpu_seconds_to_stop(f"""
        model = regard.load_model({str(make_folder(tmp_path))!r})
        press(0.1)
        ended(lambda: model.tokens("bank " * 4_000_000))
        press(0.1)
        ended(lambda: model.tokens("a" * 40_000_000))
    """)
    assert many < 0.2 and one < 0.2


def test_control_c_ends_loading_a_model(tmp_path):
    # Loading an embedding table of two million tokens with 40 16-bit elements each takes about a second. The file is
    # sparse: its zeros take no disk space.
    folder, tokens, width = make_folder(tmp_path), 2_000_000, 40
    numbers = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(numbers[:8], "little")
    header = json.loads(numbers[8:begin])
    table = header["embeddings.word_embeddings.weight"]
    table["dtype"], table["shape"] = "F16", [tokens, width]
    at, data = 0, b""
    for tensor in header.values():
        if "data_offsets" in tensor and tensor is not table:
            first, last = tensor["data_offsets"]
            tensor["data_offsets"] = [at, at + last - first]
            data += numbers[begin + first:begin + last]
            at += last - first
    table["data_offsets"] = [at, at + 2 * tokens * width]
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
        file.truncate(8 + len(text) + table["data_offsets"][1])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": tokens}))

    times = cpu_seconds_to_stop(f"""
        def seconds():
            begin = time.monotonic()
            assert regard.load_model({str(folder)!r}).width == {width}
            return time.monotonic() - begin
        lasts = min(seconds(), seconds())
        for share in (0.1, 0.3, 0.5):
            press(share * lasts)
            ended(lambda: regard.load_model({str(folder)!r}))
    """)
    assert len(times) == 3 and max(times) < 0.2


def test_control_c_ends_reading_matrices():
    of_json, of_lists = cpu_seconds_to_stop("""
        rows = "[" + ",".join(["0.123456789"] * 64) + "]"
        text = '{"Q": [' + ",".join([rows] * 40_000) + '], "K": [[1]], "V": [[1]]}'
        press(0.1)
        ended(lambda: regard.explain(text))
        lists = {"Q": [[0.123456789] * 64] * 40_000, "K": [[1]], "V": [[1]]}
        press(0.1)
        ended(lambda: regard.explain(lists))
    """)
    assert of_json < 0.2 and of_lists < 0.2


def test_control_c_ends_creating_and_opening_a_cache():
    # The page table takes long to create: the capacity is 5 · 10⁹ keys, although only a hundred pages exist.
    made, opened = cpu_seconds_to_stop("""
        shape = dict(head_size=8, capacity=5 * 10**9, page_keys=32, num_pages=100)
        press(0.1)
        ended(lambda: regard.KvCache(**shape))
        cache = regard.KvCache(**shape)
        press(0.1)
        ended(lambda: regard.KvCache.open(cache.memory))
    """)
    assert made < 0.2 and opened < 0.2


def test_a_cache_takes_memory_only_as_keys_are_appended():
    python("""
        import numpy, regard
        cache = regard.KvCache(head_size=64, capacity=20_000_000, dtype="int8")
        some = numpy.ones((1, 10, 64), numpy.float32)
        cache.append(some, some, sequence=0)
        assert cache.length() == 10 and cache.num_bytes > 2.5e9
        peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]  # of this process alone,
        assert int(peak[0].split()[1]) < 500_000, peak  # unlike ru_maxrss, which starts at the parent's
    """)


def test_control_c_ends_measuring_peaks():
    times = cpu_seconds_to_stop("""
        press(0.1)
        ended(lambda: regard.fma_gflops(1, 100.0))
        press(0.1)
        ended(lambda: regard.read_gigabytes_per_second(10**8, 2, 100.0))
        if regard.bf16_dot_gflops(1, 0.001) is not None:
            press(0.1)
            ended(lambda: regard.bf16_dot_gflops(2, 100.0))
    """)
    assert len(times) >= 2 and max(times) < 0.2


def test_a_call_continues_after_a_signal_handler_that_does_not_raise():
    x = np.zeros((1, 8, 3000, 64), np.float32)
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        assert (regard.attention(x, x, x) == 0).all()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert seen == [threading.main_thread()]


def test_other_threads_run_during_a_call():
    x = np.zeros((1, 8, 2000, 64), np.float32)
    finished = threading.Event()
    thread = threading.Thread(target=lambda: (regard.attention(x, x, x), finished.set()))
    thread.start()
    steps = 0
    while not finished.is_set():
        steps += 1
        time.sleep(0.001)
    thread.join()
    assert steps > 1


def test_concurrent_calls_get_their_own_results():
    generator = np.random.default_rng(1)
    inputs = [[generator.standard_normal((1, 2, 65, 16)).astype(np.float32) for _ in range(3)] for _ in range(8)]
    expected = [regard.attention(*three) for three in inputs]
    results = [None] * 8

    def work(i):
        for _ in range(20):
            results[i] = regard.attention(*inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(results, expected))


def test_a_forked_child_can_compute():
    python("""
        import numpy, os, regard
        x = numpy.random.default_rng(0).standard_normal((1, 8, 600, 64)).astype(numpy.float32)
        expected = regard.attention(x, x, x)
        child = os.fork()
        if child == 0:
            same = numpy.array_equal(regard.attention(x, x, x), expected)
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numpy.array_equal(regard.attention(x, x, x), expected)
    """)


# A cache that another thread reads for many seconds.
READ_CACHE = """
    import numpy, os, regard, signal, threading, time
    cache = regard.KvCache(head_size=64, capacity=100000)
    keys = numpy.zeros((1, 100000, 64), numpy.float32)
    cache.append(keys, keys, sequence=0)
    queries = numpy.zeros((1, 64, 1000, 64), numpy.float32)
    decoding = dict(query_offset=0, num_threads=1)
    threading.Thread(target=regard.attention_decode, args=(queries, cache), kwargs=decoding, daemon=True).start()
    time.sleep(0.5)
"""


def test_control_c_ends_waiting_for_a_cache():
    waited = python(textwrap.dedent(READ_CACHE) + textwrap.dedent("""
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            cache.truncate(0, 5)
        except KeyboardInterrupt:
            print(time.monotonic() - begin, flush=True)
        os._exit(0)
    """))
    assert 0.25 < float(waited) < 2


def test_a_forked_child_does_not_wait_for_threads_of_its_parent():
    python(textwrap.dedent(READ_CACHE) + textwrap.dedent("""
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                cache.truncate(0, 5)
            except RuntimeError as error:
                context = regard.attention_decode(queries[:, :1, :1], cache, query_offset=0)
                os._exit(0 if "reading this cache" in str(error) and (context == 0).all() else 1)
            os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(status)
    """))


def test_the_interpreter_exits_silently_with_a_running_thread():
    done = subprocess.run([sys.executable, "-c", "import regard, threading, time; held = regard.lesson('three-words');"
                           "threading.Thread(target=time.sleep, args=(100,), daemon=True).start()"],
                          capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "os._exit(0)"])
def test_the_interpreter_can_exit_during_a_call(end):
    python(f"""
        import numpy, os, regard, sys, threading, time
        x = numpy.zeros((1, 64, 12000, 64), numpy.float32)
        threading.Thread(target=regard.attention, args=(x, x, x), kwargs={{"num_threads": 1}}, daemon=True).start()
        time.sleep(0.3)
        {end}
    """)


def test_a_subinterpreter_can_import_or_gets_an_import_error():
    python("""
        import _xxsubinterpreters as interpreters
        import regard
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import regard")
        except interpreters.RunFailedError as error:
            assert "ImportError" in str(error), error
        interpreters.destroy(other)
        assert regard.default_num_threads() >= 1
    """)


def test_the_callers_rounding_mode_is_preserved_and_has_no_effect():
    libm = ctypes.CDLL("libm.so.6")
    x = np.full((1, 1, 3, 8), 1 / 3, np.float32)
    expected = regard.attention(x, x, x)
    upward = 0x800
    libm.fesetround(upward)
    try:
        result = regard.attention(x, x, x)
        rounding = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert rounding == upward and np.array_equal(result, expected)


def rejected(query):
    try:
        regard.attention(query, query[..., :4], query)
    except ValueError:
        return
    raise AssertionError("a key of another head size was accepted")


@pytest.mark.parametrize("calls, name", [(1_000_000, "written into an array"), (100_000, "allocated"), (20_000, "rejected"),
                                         (20_000, "by name")])
def test_calls_leak_no_references_and_no_memory(calls, name):
    query, key, value, out = (np.ones((1, 1, 1, 8), np.float32) for _ in range(4))
    call = {
        "written into an array": functools.partial(regard.attention, query, key, value, out=out),
        "allocated": functools.partial(regard.attention, query, key, value, causal="top_left", return_lse=True),
        "rejected": functools.partial(rejected, query),
        "by name": functools.partial(regard.attention_with_statistics, query, key, value, top_keys=2),
    }[name]
    objects = [query, key, value, out, None, True, np.float32, np.ndarray, regard.attention, call, "out", "top_left"]

    references, blocks = leaked(call, calls, objects)
    assert not any(references) and blocks < calls // 100


def test_threads_can_read_and_append_to_a_cache_concurrently():
    generator = np.random.default_rng(2)
    key, value = (generator.standard_normal((1, 2, 1, 16)).astype(np.float32) for _ in range(2))
    query = generator.standard_normal((1, 2, 1, 16)).astype(np.float32)
    cache = regard.KvCache(head_size=16, capacity=4096, num_kv_heads=2)
    cache.append(key, value)
    faults = []

    def read():
        for _ in range(200):
            # All keys and values are the same, so the context is the value for any number of keys.
            if not np.allclose(regard.attention_decode(query, cache, query_offset="bottom_right"), value, rtol=1e-5):
                faults.append("a value that was never appended")

    def change():
        for _ in range(500):
            cache.append(key, value)

    threads = [threading.Thread(target=work) for work in (read, change, read, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and cache.length() == 1001


def test_an_append_does_not_wait_for_reads_that_begin_later():
    cache = regard.KvCache(head_size=64, capacity=10000, num_kv_heads=2)
    some, many, query = (np.ones(shape, np.float32) for shape in ((1, 2, 1, 64), (1, 2, 4000, 64), (1, 2, 1, 64)))
    cache.append(many, many)
    reads, most, stop = [0, 0], 3000, []

    def read(reader):
        # The reads of two threads overlap, so that nearly always one is in progress.
        while not stop and sum(reads) < most:
            regard.attention_decode(query, cache, num_threads=1)
            reads[reader] += 1

    readers = [threading.Thread(target=read, args=(reader,)) for reader in (0, 1)]
    for reader in readers:
        reader.start()
    passed = []
    while sum(reads) < 20:
        time.sleep(0)
    for _ in range(20):
        before = sum(reads)
        cache.append(some, some)
        passed.append(sum(reads) - before)
    stop.append(True)
    for reader in readers:
        reader.join()
    assert cache.length() == 4020 and sum(reads) < most
    # The two reads that were in progress, and a few that run while the interpreter switches threads.
    assert max(passed) <= 20, passed
