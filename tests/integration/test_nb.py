"""Notebooks are written byte for byte as nbformat writes them (tests/lib/nb_tool.c is our side)."""

import json
import math
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from nbformat import from_dict
from nbformat.v4 import nbjson

REPO = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("REITOS_BUILD", REPO / "build")) / "tests" / "nb_tool"
PIECES = (
    ["a", "é", "漢", "😀", " ", "/", "<", '"', "\\", "\t", "\b", "\0", "\x7f", "\x1f"]
    + ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
EDGE_REALS = [0.0, -0.0, 0.1, 1e15, 1e16, 9999999999999998.0, 1e-4, 1e-5, 1e22, 1e23, 5e-324]
MIMES = ["text/plain", "text/html", "application/json", "application/vnd.x+json"]
MIMES += ["application/javascript", "image/svg+xml", "image/png", "x/y"]


def ours(texts, *args):
    done = subprocess.run(
        [TOOL, *args], input="\n".join(texts).encode() + b"\n", capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\0")[:-1]


class Maker:
    """Random notebooks, the same for one seed."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)

    def text(self):
        return "".join(self.rnd.choice(PIECES) for _ in range(self.rnd.randrange(12)))

    def lines(self):
        return self.rnd.choice([self.text(), [self.text(), self.text()]])

    def real(self):
        if self.rnd.random() < 0.5:
            return self.rnd.choice([*EDGE_REALS, self.rnd.random(), self.rnd.uniform(-1e20, 1e20)])
        while True:
            x = struct.unpack("d", self.rnd.randbytes(8))[0]
            if math.isfinite(x):
                return x

    def value(self, depth=0):
        kind = self.rnd.randrange(7 if depth < 4 else 5)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.real()
        if kind == 2:
            return self.rnd.randrange(-(2**63), 2**63)
        if kind == 3:
            return self.rnd.choice([True, False, None])
        if kind == 4:
            return self.rnd.randrange(100)
        n = self.rnd.randrange(4)
        if kind == 5:
            return {self.text().replace("\0", ""): self.value(depth + 1) for _ in range(n)}
        return [self.value(depth + 1) for _ in range(n)]

    def bundle(self):
        chosen = self.rnd.sample(MIMES, 3)
        return {m: self.value() if "json" in m else self.lines() for m in chosen}

    def output(self):
        kind = self.rnd.randrange(4)
        if kind == 0:
            return {"output_type": "stream", "name": "stdout", "text": self.lines()}
        if kind == 1:
            return {"output_type": "display_data", "data": self.bundle(), "metadata": {}}
        if kind == 2:
            return {
                "output_type": "execute_result",
                "data": self.bundle(),
                "metadata": {"a": self.value()},
                "execution_count": 3,
            }
        tb = [self.text(), self.text()]
        return {"output_type": "error", "ename": "E", "evalue": self.text(), "traceback": tb}

    def cell(self, i):
        kind = self.rnd.choice(["code", "markdown", "raw"])
        meta = {"trusted": True, "x": self.value()}
        cell = {"cell_type": kind, "id": f"c{i}", "metadata": meta, "source": self.lines()}
        if kind == "code":
            cell["outputs"] = [self.output() for _ in range(self.rnd.randrange(3))]
            cell["execution_count"] = self.rnd.choice([None, 1])
        elif self.rnd.random() < 0.5:
            cell["attachments"] = {"a.png": self.bundle()}
        return cell

    def notebook(self):
        return {
            "cells": [self.cell(i) for i in range(self.rnd.randrange(4))],
            "metadata": {"signature": "x", "orig_nbformat": 3, "k": self.value()},
            "nbformat": 4,
            "nbformat_minor": 5,
        }


@pytest.fixture(scope="module")
def texts():
    maker = Maker(7)
    made = [json.dumps(maker.notebook()) for _ in range(1000)]
    stored = [p for p in (REPO / "examples").glob("*.ipynb")]
    return made + [json.dumps(json.loads(p.read_text())) for p in stored]


def test_written_as_nbformat(texts):
    for text, got in zip(texts, ours(texts), strict=True):
        assert got == nbjson.writes(from_dict(json.loads(text))) + "\n", text


def test_joined_as_nbformat(texts):
    for text, got in zip(texts, ours(texts, "join"), strict=True):
        assert got == nbjson.writes(nbjson.reads(text)) + "\n", text
