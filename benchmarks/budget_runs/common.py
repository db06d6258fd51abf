"""What the scaled-down runs have in common: their options, their ranks, and waits that a reading from outside can meet."""

import argparse
import multiprocessing
import os
import time

import torch
import torch.multiprocessing


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--start_method", default="fork")
    parser.add_argument("--empty", action="store_true", help="the same run with next to no data")
    return parser.parse_args()


def begin(args):
    torch.set_num_threads(1)
    torch.multiprocessing.set_start_method(args.start_method, force=True)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")


def passes(loader, epochs):
    """All batches of some epochs, with a wait until all batches that may wait do."""
    for epoch in range(epochs):
        for number, batch in enumerate(loader):
            yield batch
            if number == epoch == 0:
                idle()


def idle(seconds=1.5):
    """Wait until the workers have nothing to do."""
    before, since = None, time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.1)
        now = [_ticks(child.pid) for child in multiprocessing.active_children()]
        if now != before:
            before, since = now, time.monotonic()


def _ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[11:13]


def end(wait=1):
    time.sleep(wait)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
