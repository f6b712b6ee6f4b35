"""PyTorch DistributedDataParallel with torchft: a replica that joins again gets the state of the others.

Counterpart of recovery_bench.py's training: one replica group per rank, each of one process, with the model and batch of
torch_restarts.py. TORCHFT_LIGHTHOUSE is the address of the lighthouse. Appends a JSON line for each committed step to the
file PID in --steps-folder: the step, the time at its end, and the number of replicas that took part.
"""

import argparse
import datetime
import json
import os
import pathlib
import time

import torch
from torch.distributed import TCPStore
from torch.nn import functional as F
from torch_restarts import resnet18
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-folder", required=True)
    parser.add_argument("--replica", required=True)
    parser.add_argument("--share", type=int, required=True, help="batch size of this replica")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = resnet18()
    sgd = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def load(state):
        model.load_state_dict(state["model"])
        sgd.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(), min_replica_size=1, replica_id=args.replica, hostname="127.0.0.1",
        timeout=datetime.timedelta(seconds=30), store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": sgd.state_dict()})
    parallel = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, sgd)
    images, labels = torch.randn(args.share, 1, 32, 32), torch.randint(10, (args.share,))
    with (pathlib.Path(args.steps_folder) / str(os.getpid())).open("a", encoding="utf-8", buffering=1) as log:
        while True:
            before = manager.current_step()
            optimizer.zero_grad()
            F.cross_entropy(parallel(images), labels).backward()
            optimizer.step()
            if manager.current_step() > before:
                log.write(json.dumps({"step": manager.current_step(), "time": time.time(),
                                      "replicas": manager.num_participants()}) + "\n")


if __name__ == "__main__":
    main()
