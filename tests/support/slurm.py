"""A Slurm cluster on loopback for benchmarks and tests: slurmctld and several slurmd of Debian's packages."""

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

from tests.support.daemon import wait_until

# Settings of Slurm's guide to high throughput that apply to short jobs on one machine: no accounting, no cgroups, no
# prolog, cons_tres on cores, frequent scheduling in batches, little logging, finished jobs forgotten soon.
CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
SlurmctldDebug=error
SlurmdDebug=error
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,default_queue_depth=2000,sched_max_job_start=2000,bf_interval=5,max_rpc_cnt=150
PriorityType=priority/basic
MaxJobCount=100000
MinJobAge=300
MessageTimeout=60
KillWait=1
InactiveLimit=0
Waittime=0
{gres}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def missing_programs():
    return [name for name in ("slurmctld", "slurmd", "sbatch", "squeue") if find(name) is None]


def find(program):
    """Path of a program, which may be one for administrators; None if it is not installed."""
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class SlurmCluster:
    """slurmctld and `nodes` slurmd with `slots` CPUs and `gpus` GPUs each, which are copies of /dev/null.

    A context manager that stops them. Only root can create the GPUs.
    """

    def __init__(self, nodes, slots, gpus=0):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-slurm."))
        self.names = [f"s{i + 1}" for i in range(nodes)]
        self._slots = slots
        self._gpus = gpus
        self._daemons = []

    def __enter__(self):
        (self.directory / "state").mkdir()
        host = socket.gethostname()
        lines = []
        for name in self.names:
            (self.directory / name).mkdir()
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
                         f"CPUs={self._slots} State=UNKNOWN" + (f" Gres=gpu:{self._gpus}" if self._gpus else ""))
        for i in range(self._gpus):
            os.mknod(self.directory / f"gpu{i}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        if self._gpus:
            (self.directory / "gres.conf").write_text(f"Name=gpu File={self.directory}/gpu[0-{self._gpus - 1}]\n")
        self.configuration = self.directory / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(
            host=host, ctld_port=free_port(), dir=self.directory, nodes="\n".join(lines),
            gres="GresTypes=gpu" if self._gpus else ""))
        try:
            self._start("slurmctld", "-D", "-i", "-f", str(self.configuration))
            for name in self.names:
                self._start("slurmd", "-D", "-N", name, "-f", str(self.configuration))
            wait_until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(self.names)), 30,
                       "all nodes idle")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind, value, trace):
        self._stop()
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            print(f"Slurm's directory kept: {self.directory}")

    def _start(self, program, *arguments):
        log = open(self.directory / f"{program}-{len(self._daemons)}.out", "w")  # closed at exit
        self._daemons.append(subprocess.Popen([find(program), *arguments], env=self.env(), stdout=log,
                                              stderr=subprocess.STDOUT, start_new_session=True))

    def _stop(self):
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def env(self):
        return dict(os.environ, SLURM_CONF=str(self.configuration))

    def run(self, *argv):
        return subprocess.run(argv, env=self.env(), text=True, capture_output=True, check=False).stdout
