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


def keccak256(data):
    return keccak.new(digest_bits=256, data=data).digest()


def words(hexadecimal):
    return [bytes.fromhex(hexadecimal[at : at + 64]) for at in range(0, len(hexadecimal), 64)]


def number(word):
    return int.from_bytes(word, "big")


def fold(row, depth=None, siblings=()):
    """Root over a row of digests from leaf 0 on; what is right of them is given, or padding (1.2, 1.3)."""
    row, siblings, zero = list(row), list(siblings), bytes(32)
    for _ in range((len(row) - 1).bit_length() if depth is None else depth):
        if len(row) & 1:
            row.append(siblings.pop(0) if siblings else zero)
        row = [sha256(b"\1" + row[i] + row[i + 1]).digest() for i in range(0, len(row), 2)]
        zero = sha256(b"\1" + zero + zero).digest()
    assert len(row) == 1 and not siblings
    return row[0]


def tensor_root(data):
    return fold([sha256(b"\0" + data[at : at + 2048]).digest() for at in range(0, len(data), 2048)])


def program_root(data):
    """Leaves of a program: its header of 31 bytes, its nodes, its outputs of 4 bytes each (rule 1.6)."""
    nodes, slots = struct.unpack(">II", data[15:23])
    leaves, at = [data[:31]], 31
    for _ in range(nodes):
        size = number(data[at : at + 4])
        leaves.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    leaves += [data[at + 4 * i : at + 4 * i + 4] for i in range(slots)]
    return fold([sha256(b"\0" + leaf).digest() for leaf in leaves])


def main(folder):
    receipt = json.loads((folder / "receipt.json").read_bytes())
    assert receipt["schema"] == "assay/receipt/2"
    terms, jobs = words(receipt["terms"]), bytes.fromhex(receipt["chain"]["contracts"]["Jobs"][2:])
    job = keccak256(receipt["chain"]["id"].to_bytes(32, "big") + bytes(12) + jobs + b"".join(terms))
    assert job.hex() == receipt["job"], "the job's id is not the hash of its terms"
    settled = {}
    for entry in receipt["claims"]:
        claim, roots = words(entry["claim"]), [bytes.fromhex(root) for root in entry["roots"]]
        assert keccak256(b"".join(claim)).hex() == entry["id"], "a claim's id is not its hash"
        assert claim[0] == job and [claim[6], claim[7], claim[8]] == [roots[0], roots[-1], fold(roots)]
        if number(words(entry["status"])[0]) == 4:
            place = tuple(number(word) for word in claim[1:4])
            assert place not in settled, "two settled claims of one place"
            settled[place] = claim
    assert all((1, round_, 0) in settled for round_ in range(receipt["rounds"])), "a round is not settled"
    manifest = (folder / "manifest.json").read_bytes()
    assert sha256(manifest).digest() == terms[12]
    assert program_root((folder / "inner.program").read_bytes()) == terms[1]
    assert program_root((folder / "outer.program").read_bytes()) == terms[5]
    model = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", model[:8])[0]
    header, data = json.loads(model[8 : 8 + size]), model[8 + size :]
    names = json.loads(manifest)["slots"][: number(terms[4])]
    roots = [tensor_root(data[slice(*header[name]["data_offsets"])]) for name in names]
    proof, depth = [bytes.fromhex(x) for x in receipt["proof"]], (number(terms[7]) - 1).bit_length()
    output = settled[1, receipt["rounds"] - 1, 0][7]
    assert fold(roots, depth, proof) == output, "the model is not part of the last output root"
    said = f"job {job.hex()}, {len(receipt['claims'])} claims, root {output.hex()}"
    print(f"consistent with its receipt: {said}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
