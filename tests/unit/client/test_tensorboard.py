"""Event files for TensorBoard, against the bytes that TensorBoard's own writer gives."""

from __future__ import annotations

from pathlib import Path

from assay.client.tensorboard import TensorBoard, masked_crc32c

WRITTEN_BY_TENSORBOARD = bytes.fromhex(
    "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b3531102300000000000000b09f77430900"
    "002040fc54d94110ac022a150a130a0c6c6f73732f73686172642d30150000104026b4cfc416000000000000004f61be280900002040"
    "fc54d9412a0b0a090a02c3bc150000c0bfc231929c"
)
"""RecordWriter of tensorboard 2.21.0: the version, 2.25 at step 300 of loss/shard-0, -1.5 at step 0 of ü."""


def test_the_file_is_what_tensorboard_writes(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "run", lambda: 1_700_000_000.5) as board:
        board.scalar("loss/shard-0", 2.25, 300)
        board.scalar("ü", -1.5, 0)
    assert board.path.name.startswith("events.out.tfevents.1700000000.")
    assert board.path.read_bytes() == WRITTEN_BY_TENSORBOARD


def test_a_record_can_be_read_before_the_file_is_closed(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, lambda: 1_700_000_000.5)
    board.scalar("loss/shard-0", 2.25, 300)
    assert WRITTEN_BY_TENSORBOARD.startswith(board.path.read_bytes())
    board.close()


def test_the_checksum_is_castagnolis() -> None:
    value = 0xE3069283  # of "123456789", RFC 3720
    assert masked_crc32c(b"123456789") == ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
