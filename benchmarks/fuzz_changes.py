"""Ways to change files of every format, by someone who knows its form.

A branch of a tree is replaced or removed, a column gets another type, a node of a tree another
child; names become SQL, code or paths; some bytes are simply wrong.
"""

from __future__ import annotations

import gzip
import json
import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

__all__ = [
    "OWNED", "as_booster", "as_csv", "as_database", "as_gzip", "as_json", "as_lines", "as_modules",
    "as_npy", "as_parquet", "as_progress", "as_safetensors", "as_yaml", "mangled", "mutated", "odd",
]  # fmt: skip

OWNED = "relfrog-was-here"


def odd(rng: random.Random) -> Any:
    """A value that nobody expects."""
    return rng.choice([
        None, "", "x", -1, 0, 1, 2**63, 1e308, float("nan"), float("inf"), [], {}, [1], {"a": 1},
        True, "9999-99-99", "NaT", "nan", "../x", "/etc/passwd", 10**30, "\x00", "1 ns", "-1 days",
        "2020-01-01T00:00:00+05:00", "null", "🐸", [[]], "x" * 300, '"; DROP TABLE x; --',
        f"(SELECT 1); COPY (SELECT 1) TO '{OWNED}'; --", f"@pd.io.common.os.mkdir('{OWNED}')",
        f"!!python/object/apply:os.mkdir ['{OWNED}']", {"a": {"a": {"a": {}}}}, -0.0, 5e-324,
    ])  # fmt: skip


def mutated(rng: random.Random, value: Any) -> Any:
    """The same tree with one branch replaced, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, copy, action = rng.choice(list(value)), dict(value), rng.random()
        if action < 0.15:
            del copy[key]
        elif action < 0.25:
            copy[str(odd(rng))] = odd(rng)
        elif action < 0.3:
            copy[str(odd(rng))] = copy.pop(key)
        else:
            copy[key] = mutated(rng, value[key])
        return copy
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return [*value[:place], *value[place + 1 :]]
        if rng.random() < 0.1:
            return [*value, value[place]]
        return [*value[:place], mutated(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, int | float) and rng.random() < 0.5:
        return rng.choice([-value, value + 1, value * 1e9, float(value), str(value), value - 1])
    return odd(rng)


def mangled(rng: random.Random, content: bytes) -> bytes:
    """A file with some wrong bytes."""
    at = rng.randrange(max(len(content), 1))
    return rng.choice([
        lambda: content[:at], lambda: content + content, lambda: b"",
        lambda: content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :],
        lambda: content[:at] + rng.randbytes(8) + content[at:],
        lambda: content.replace(b":", b"", 1), lambda: content.replace(b"0", b"-1"),
        lambda: b"[" * 500, lambda: content.replace(b"\n", b"\n "),
        lambda: b'{"a":' * 100_000 if rng.random() < 0.02 else b"{",
    ])()  # fmt: skip


def as_json(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, content)
    tree = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        tree = mutated(rng, tree)
    return json.dumps(tree).encode()


def as_modules(rng: random.Random, content: bytes) -> bytes:
    """Other classes, functions and places in the files of a language model."""
    if rng.random() < 0.4:
        return as_json(rng, content)
    text = content.decode()
    for old in ("sentence_transformers.models.Dense", "2_Dense", "torch.nn.Tanh"):
        if rng.random() < 0.5:
            text = text.replace(old, rng.choice([
                "os.abort", "sentence_transformers.models.Router", "joblib.numpy_pickle", "Tanh",
                "sentence_transformers.models.Dense.os.abort", "torch.hub.load", "torch.jit", "",
                "torch.nn.modules.module.os.abort", "torch.nn.ReLU", "../../x", "/etc", "gelu",
            ]))  # fmt: skip
    if rng.random() < 0.2:
        text = text.replace("{", '{"a": [{"auto_map": {"AutoModel": "x.Y"}}], ', 1)
    return text.encode()


def as_lines(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[:at], as_json(rng, lines[at]), *lines[at + 1 :]])


def as_yaml(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.2:
        return mangled(rng, content)
    tree = yaml.load(content, yaml.CSafeLoader)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        tree = mutated(rng, tree)
    return yaml.dump(tree, Dumper=yaml.CSafeDumper, allow_unicode=True).encode()


def as_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Another header: names, types, shapes and places of tensors."""
    if rng.random() < 0.3:
        return mangled(rng, content)
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(mutated(rng, json.loads(content[8 : 8 + size]))).encode()
    told = rng.choice([len(header)] * 8 + [0, 1 << 62, len(header) + 1])
    return told.to_bytes(8, "little") + header + content[8 + size :]


def as_booster(rng: random.Random, content: bytes) -> bytes:
    """Other numbers, lines and sizes in LightGBM's text."""
    lines = content.decode().split("\n")
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(min(len(lines), 60))
        name, mark, value = lines[at].partition("=")
        action = rng.random()
        if action < 0.1:
            del lines[at]
        elif action < 0.2:
            lines.insert(at, rng.choice(lines))
        elif mark and value:
            words = value.split(" ")
            place = rng.randrange(len(words))
            words[place] = rng.choice([
                "-1", "0", "1", "7", "99999", "-99999", "nan", "inf", "1e400", "", "x", "0x10",
                str(2**31), str(2**63), words[place] + "0", "-" + words[place], "1 2", "[0:1]",
            ])  # fmt: skip
            lines[at] = f"{name}={' '.join(words)}"
        else:
            lines[at] = str(odd(rng))
    text = "\n".join(lines)
    if rng.random() < 0.7:  # who is malicious keeps the sizes right
        head, _, rest = text.partition("\n\n")
        trees = rest.split("end of trees")[0]
        parts = ["Tree=" + part for part in trees.split("Tree=")[1:]]
        sizes = " ".join(str(len(part)) for part in parts)
        head = "\n".join(
            f"tree_sizes={sizes}" if line.startswith("tree_sizes") else line
            for line in head.split("\n")
        )
        text = f"{head}\n\n{rest}"
    return text.encode(errors="replace")


def _column(rng: random.Random, values: pa.ChunkedArray) -> pa.Array:
    """A column of another type or with other values."""
    count = len(values)
    start = date(2020, 1, 1)
    return rng.choice([
        lambda: pa.array([str(v) for v in values.to_pylist()]),
        lambda: pa.array([None] * count, rng.choice([pa.int64(), pa.null(), pa.timestamp("us")])),
        lambda: pa.array(rng.choices([0.5, -1.0, 1e300, float("nan"), 3.0, None], k=count)),
        lambda: pa.array(rng.choices([0, 1, -1, 2**62, count], k=count)),
        lambda: pa.array(rng.choices([True, False, None], k=count)),
        lambda: pa.array(rng.choices([[1], [], None], k=count), pa.list_(pa.int8())),
        lambda: pa.array(rng.choices([Decimal("1.5"), None], k=count), pa.decimal128(9, 2)),
        lambda: pa.array([start + timedelta(rng.randrange(900)) for _ in range(count)]),
        lambda: pa.array([rng.randrange(2**50) for _ in range(count)], pa.timestamp("us", "UTC")),
        lambda: pa.array([rng.randrange(2**60) for _ in range(count)], pa.timestamp("ns")),
        lambda: pa.array([rng.randrange(2**30) for _ in range(count)], pa.timestamp("s")),
        lambda: pa.array([rng.randrange(2**30) for _ in range(count)], pa.duration("s")),
        lambda: pa.array(rng.choices(["a", "b", None], k=count)).dictionary_encode(),
        lambda: pa.array(rng.choices([{"a": 1}, None], k=count)),
        lambda: pa.array([b"\xff"] * count),
        lambda: values.take(pa.array(rng.sample(range(count), count), pa.int64())).combine_chunks(),
    ])()  # fmt: skip


def as_parquet(rng: random.Random, content: bytes) -> bytes:
    """Columns of other types, names, order and number; rows in another order, or none."""
    if rng.random() < 0.15:
        return mangled(rng, content)
    table = pq.read_table(pa.BufferReader(content))
    for _ in range(rng.choice([1, 1, 2, 3])):
        at, action = rng.randrange(table.num_columns), rng.random()
        name = table.column_names[at]
        if action < 0.6:
            table = table.set_column(at, name, _column(rng, table.column(at)))
        elif action < 0.7:
            table = table.remove_column(at)
        elif action < 0.8:
            table = table.rename_columns(
                [str(odd(rng)) if n == name else n for n in table.column_names]
            )
        elif action < 0.85:
            table = table.append_column(rng.choice(table.column_names), table.column(at))
        elif action < 0.9:
            table = table.slice(0, rng.choice([0, 1]))
        elif action < 0.95:
            table = pa.concat_tables([table, table])
        else:
            table = table.replace_schema_metadata({"pandas": str(odd(rng))})
        if not table.num_columns:
            break
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(table, sink)
    except pa.ArrowNotImplementedError:  # a type that Parquet does not have
        return mangled(rng, content)
    return bytes(sink.getvalue())


def as_csv(rng: random.Random, content: bytes) -> bytes:
    """Other cells, names, marks and numbers of columns."""
    if rng.random() < 0.2:
        return mangled(rng, content)
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(rng.choice([1, 1, 2, 4])):
        at, action = rng.randrange(len(rows)), rng.random()
        if action < 0.6 and rows[at]:
            rows[at][rng.randrange(len(rows[at]))] = rng.choice([
                str(odd(rng)), '"', "'", "\\", '"a""b', "a\nb", '"a\nb"', "1e999", "\r", " ",
                "x" * 5000, "\ufeff", "٣", "007", "2020-13-45", "0x10", "1_000", "=1+1", "NULL",
            ])  # fmt: skip
        elif action < 0.75:
            rows[at] = rows[at] + [str(odd(rng))] * rng.choice([1, 3])
        elif action < 0.85:
            rows[at] = rows[at][:-1]
        elif action < 0.9:
            rows.insert(at, list(rows[at]))
        else:
            rows = rows[:at] or [[]]
    mark, end = rng.choice([",", ",", ",", ";", "\t", "|", "a"]), rng.choice(["\n", "\n", "\r\n"])
    text = end.join(mark.join(row) for row in rows) + end
    code = rng.choice(["utf-8"] * 6 + ["utf-16", "latin-1", "utf-8-sig"])
    return text.encode(code, errors="replace")


def as_gzip(rng: random.Random, content: bytes) -> bytes:
    """A compressed CSV file: its text or its compressed bytes are changed."""
    if rng.random() < 0.5:
        return mangled(rng, content)
    return gzip.compress(as_csv(rng, gzip.decompress(content)), 1)


def as_npy(rng: random.Random, content: bytes) -> bytes:
    """Another header, type or shape of an array."""
    if rng.random() < 0.3:
        return mangled(rng, content)
    end = content.index(b"\n") + 1
    kind = rng.choice(["<f4", "<i8", "|O", "<U3", "|b1", "<M8[ns]", "|V8", "<f16", "[]", "x"])
    shape = rng.choice(["()", "(0,)", "(3,)", "(1, 2)", "(-1,)", f"({2**62},)", "(1.5,)", "x"])
    order = rng.choice(["False", "True", "1", "None"])
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    if rng.random() < 0.1:
        header = rng.choice([b"{" * 300, b"__import__('os')", b"[1, 2]", b"{'descr': 1}"])
    header = header.ljust(-(10 + len(header) + 1) % 64 + len(header)) + b"\n"
    version = rng.choice([b"\x01\x00"] * 6 + [b"\x02\x00", b"\x03\x00", b"\x09\x00"])
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + size + header + content[end:]


def as_database(rng: random.Random, content: bytes) -> bytes:
    """The file of a database with other bytes in its pages, or cut off."""
    made = bytearray(content)
    for _ in range(rng.choice([1, 3, 20, 200])):
        # The header and the schema are at the beginning.
        at = rng.randrange(min(len(made), 4096) if rng.random() < 0.5 else len(made))
        made[at] = rng.choice([0, 1, 255, 128, rng.randrange(256)])
    return bytes(made[: rng.randrange(len(made))] if rng.random() < 0.1 else made)


def as_progress(rng: random.Random, content: bytes) -> bytes:
    """A checkpoint that says something else of where training is, without a checksum."""
    if rng.random() < 0.4:
        return as_safetensors(rng, content)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    progress = mutated(rng, json.loads(header["__metadata__"]["progress"]))
    header["__metadata__"] = {"progress": json.dumps(progress)}
    made = json.dumps(header).encode()
    return len(made).to_bytes(8, "little") + made + content[8 + size :]
