"""A DDP training that loses no step when Muster stops it: it saves on the stop signal, and resumes.

    muster run --ranks-per-node 2 --set grace_period=60s -- python3 examples/resumable_ddp.py --steps 1000

Muster stops the ranks when the job is requeued or cancelled, its node is drained, or its time limit ends. Each rank then
receives MUSTER_STOP_SIGNAL and has MUSTER_GRACE_SECONDS to save in MUSTER_CHECKPOINT_DIR and exit. Without Muster, for
example under torchrun, the script stops on SIGTERM and saves in the current directory.
"""

import argparse
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(path, state):
    """Replaces the file in one step: a rank that is killed while it writes leaves the previous one."""
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def digest(state_dict):
    """SHA-256 of all weights, to compare trainings."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(state_dict.items()):
        sha256.update(name.encode() + tensor.cpu().numpy().tobytes())
    return sha256.hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="extra time of each step, for demonstrations")
    args = parser.parse_args()

    # A handler only notes the request: saving must wait until the step is complete.
    stop_requested = False

    def request_stop(signum, frame):
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.Signals[os.environ.get("MUSTER_STOP_SIGNAL", "SIGTERM")], request_stop)

    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    path = os.path.join(os.environ.get("MUSTER_CHECKPOINT_DIR", "."), "state.pt")

    # Only rank 0 reads and writes, so that the nodes need not share the directory.
    state = [torch.load(path) if rank == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(state)
    step = 0
    if state[0] is not None:
        model.module.load_state_dict(state[0]["model"])
        optimizer.load_state_dict(state[0]["optimizer"])
        step = state[0]["step"]
        print(f"resumed after step {step}", flush=True)

    stopped = False
    while step < args.steps and not stopped:
        torch.manual_seed(1000 * step + rank)
        x = torch.randn(64, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.step_seconds)
        step += 1
        print(f"step {step} loss {loss.item():.6f}", flush=True)
        # The signal reaches the ranks at different times; they agree on the step after which they stop.
        flag = torch.tensor(float(stop_requested))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        stopped = bool(flag)
        if rank == 0 and (stopped or step % args.save_every == 0 or step == args.steps):
            save(path, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    dist.barrier()  # the other ranks wait until rank 0 has saved
    if stopped:
        print(f"stopped after step {step}", flush=True)
    elif rank == 0:
        print(f"weights {digest(model.module.state_dict())}", flush=True)


if __name__ == "__main__":
    main()
