"""Check a fetched model against its receipt with nothing of the project: docs/formats.md, section 7.

Usage: verify_receipt.py FOLDER. It needs Python and a Keccak (pycryptodome), and no network. What it finds is
that the folder is consistent with itself; whether the chain knows the ids that it prints, ask the chain.
"""

import json
import struct
import sys
from hashlib import sha256
from pathlib import Path

from Crypto.Hash import keccak


def words(hexadecimal):
    return [bytes.fromhex(hexadecimal[at : at + 64]) for at in range(0, len(hexadecimal), 64)]


def number(word):
    return int.from_bytes(word, "big")


def fold(row, siblings=(), leaves=0):
    """Root of a tree from its leaf 0 on; what is right of the row is given, or padding (1.2, 1.3)."""
    row, siblings, zero = list(row), list(siblings), bytes(32)
    for _ in range(((leaves or len(row)) - 1).bit_length()):
        if len(row) & 1:
            row.append(siblings.pop(0) if siblings else zero)
        row = [sha256(b"\1" + row[i] + row[i + 1]).digest() for i in range(0, len(row), 2)]
        zero = sha256(b"\1" + zero + zero).digest()
    assert len(row) == 1 and not siblings
    return row[0]


def leaf_root(leaves):
    return fold([sha256(b"\0" + leaf).digest() for leaf in leaves])


def program_root(data):
    nodes, slots = struct.unpack(">II", data[15:23])
    leaves, at = [data[:31]], 31
    for _ in range(nodes):
        size = number(data[at : at + 4])
        leaves, at = [*leaves, data[at + 4 : at + 4 + size]], at + 4 + size
    return leaf_root(leaves + [data[at + 4 * i : at + 4 * i + 4] for i in range(slots)])


def main(folder):
    receipt = json.loads((folder / "receipt.json").read_bytes())
    assert receipt["schema"] == "assay/receipt/1"
    preimage = receipt["chain"]["id"].to_bytes(32, "big") + bytes(12)
    preimage += bytes.fromhex(receipt["chain"]["contracts"]["Jobs"][2:]) + (96).to_bytes(32, "big")
    terms = words(receipt["terms"])[1:]  # after the word that says where they begin
    job = keccak.new(digest_bits=256, data=preimage + b"".join(terms)).digest()
    assert job.hex() == receipt["job"], "the job's id is not the hash of its terms"
    outputs = {}
    for entry in receipt["claims"]:
        claim, roots = words(entry["claim"]), words("".join(entry["roots"]))
        assert keccak.new(digest_bits=256, data=b"".join(claim)).hexdigest() == entry["id"], "another claim"
        assert claim[0] == job and claim[6:9] == [roots[0], roots[-1], fold(roots)], "roots of another claim"
        if number(words(entry["status"])[0]) == 4 and number(claim[1]) == 1:  # a settled outer claim
            outputs[number(claim[2]), number(claim[3])] = claim[7]
    params, slices = number(terms[11]), number(terms[14])
    rounds = receipt["rounds"]  # of later ones some claims may be settled already, but not a whole round
    places = [(r, s) for r in range(rounds) for s in range(slices)]
    assert sorted(outputs)[: len(places)] == places, "a round is not settled"
    assert sum(r == rounds for r, _ in outputs) < slices, "a further round is settled"
    manifest = (folder / "manifest.json").read_bytes()
    assert sha256(manifest).digest() == terms[4], "a manifest that the terms do not name"
    for word, at in ("inner", number(terms[41]) // 32), ("outer", number(terms[42]) // 32):
        for i in range(number(terms[at])):  # loops, of seven words each
            data = (folder / (f"{word}-{i}.program" if i else f"{word}.program")).read_bytes()
            assert program_root(data) == terms[at + 1 + 7 * i], "a program that the terms do not name"
    model = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", model[:8])[0]
    header, data, manifest = json.loads(model[8 : 8 + size]), model[8 + size :], json.loads(manifest)
    parts = manifest["model"].get("parameters")  # [[name, shape], ...] of what equal blocks hold, end to end
    names = [name for name, _ in parts] if parts else model_names(terms, manifest["slots"])
    slots = [data[slice(*header[name]["data_offsets"])] for name in names]
    if parts:
        flat = b"".join(slots)
        size = 4 * -(-len(flat) // 4 // params)
        slots = [flat[at : at + size].ljust(size, b"\0") for at in range(0, size * params, size)]
    roots = [leaf_root([raw[at : at + 2048] for at in range(0, len(raw), 2048)]) for raw in slots]
    proof, each = words("".join(receipt["proof"])), len(roots) // slices
    way = len(proof) // slices
    for s in range(slices):
        root = fold(roots[s * each : (s + 1) * each], proof[s * way : (s + 1) * way], number(terms[10]))
        assert root == outputs[rounds - 1, s], "the model is not part of the last output root"
    print(f"consistent with its receipt: job {job.hex()}, {len(receipt['claims'])} claims, root {root.hex()}")


def model_names(terms, slots):
    """What the model's tensors are called, in the order of the last outer state: the job's parameters, and
    those that tasks of other shards read in their place."""
    params, at = number(terms[11]), number(terms[43]) // 32
    others, slot = {}, 0
    for i in range(number(terms[at])):  # links, of eleven words each
        origin, source, _, count, times, first, _, _, _, parts, stride = map(
            number, terms[at + 1 + 11 * i : at + 12 + 11 * i]
        )
        for j in range(count if (origin, source) == (1, 1) else 0):
            if slot + j < params:
                others |= {first + j + k * stride: f"{slots[slot + j]}@{k}" for k in range(1, parts)}
        slot += count * times
    return slots[:params] + [others[k] for k in range(params, max(others, default=0) + 1)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
