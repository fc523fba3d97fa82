# SPDX-License-Identifier: Apache-2.0
"""The contents of the modules: what they import, and that no instruction depends on the engine (relaxed SIMD)."""

import re

import pytest

from wasm_module import MODULES

# Integers are stored in 7 bits a byte, with bit 7 set in all but the last.
NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
CODE, IMPORTS = 10, 2
# One instruction with its operands. Instructions of relaxed SIMD are 0xfd with a number from 0x100 on.
INSTRUCTION = re.compile(b"|".join((
    rb"[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]",
    rb"[\x02-\x04\x0c\x0d\x10\x12\x20-\x26\x41\x42\xd0\xd2]" + NUMBER,
    rb"[\x11\x13\x28-\x3e]" + NUMBER + NUMBER,
    rb"[\x3f\x40]\x00",
    rb"\x43.{4}|\x44.{8}",
    rb"\xfc(?:[\x00-\x07]|[\x08\x0a\x0c\x0e]" + NUMBER + NUMBER + rb"|[\x09\x0b\x0d\x0f-\x11]" + NUMBER + rb")",
    rb"\xfd[\x00-\x0b\x5c\x5d]" + NUMBER + NUMBER,
    rb"\xfd[\x54-\x5b]" + NUMBER + NUMBER + rb".",
    rb"\xfd[\x0c\x0d].{16}|\xfd[\x15-\x22].",
    rb"\xfd(?:[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff]\x01)",
)), re.DOTALL)
BRANCH_TABLE, SIMD = 0x0e, 0xfd


def number(data, at):
    """An unsigned integer, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def sections(module):
    assert module[:8] == b"\0asm\1\0\0\0"
    at = 8
    while at < len(module):
        kind = module[at]
        size, at = number(module, at + 1)
        yield kind, module[at:at + size]
        at += size


def instructions(body):
    """The instructions of a function; an unknown one raises ValueError."""
    groups, at = number(body, 0)
    for _ in range(groups):
        _, at = number(body, at)
        at += 1
    while at < len(body):
        begin = at
        if body[at] == BRANCH_TABLE:
            targets, at = number(body, at + 1)
            for _ in range(targets + 1):
                _, at = number(body, at)
        else:
            match = INSTRUCTION.match(body, at)
            if match is None:
                raise ValueError(f"unknown instruction {body[at:at + 4].hex(' ')}")
            at = match.end()
        yield body[begin:at]
    assert at == len(body) and body[-1:] == b"\x0b"


def functions(module):
    code = dict(sections(module))[CODE]
    count, at = number(code, 0)
    for _ in range(count):
        size, at = number(code, at)
        yield code[at:at + size]
        at += size
    assert at == len(code)


def imported(module):
    """(module, name) of every import; all are functions."""
    data = dict(sections(module))[IMPORTS]
    count, at = number(data, 0)
    for _ in range(count):
        names = []
        for _ in range(2):
            size, at = number(data, at)
            names.append(data[at:at + size].decode())
            at += size
        assert data[at] == 0, names
        _, at = number(data, at + 1)
        yield tuple(names)


@pytest.mark.parametrize("name", ["core.wasm", "checks.wasm"])
def test_only_a_way_to_throw_and_wasi_are_imported(name):
    names = list(imported((MODULES / name).read_bytes()))
    assert ("regard", "throw_error") in names
    assert {module for module, name in names if (module, name) != ("regard", "throw_error")} == {"wasi_snapshot_preview1"}


@pytest.mark.parametrize("name", ["core.wasm", "checks.wasm"])
def test_no_instruction_is_of_relaxed_simd(name):
    num_simd = sum(instruction[0] == SIMD for body in functions((MODULES / name).read_bytes()) for instruction in instructions(body))
    assert num_simd > 1_000


@pytest.mark.parametrize("relaxed", [b"\xfd\x80\x02", b"\xfd\x85\x02", b"\xfd\x94\x02"])
def test_relaxed_simd_would_be_found(relaxed):
    assert len(list(instructions(b"\x00\xfd\x0c" + bytes(16) + b"\x0b"))) == 2
    with pytest.raises(ValueError, match="unknown instruction fd"):
        list(instructions(b"\x00" + relaxed + b"\x0b"))
