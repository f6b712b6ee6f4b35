// One rank of the mpi backend, started by mpirun: mpi_rank WHAT [TIMEOUT]. Prints its result as one
// line on stdout.
//
//   groups   two groups in addition to the world, with concurrent operations
//   killed   the last rank kills itself during an operation
//   stopped  the last rank stops itself during an operation
//   resumed  the same, but it continues after more than its timeout, and the others join only then
//   absent   the last rank does not join
//   failed   the last rank aborts during an operation and exits with 3
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

uint32_t MpirunVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? 0 : static_cast<uint32_t>(std::atoi(value));
}

absl::Status Sum(Communicator& communicator, std::vector<float>* data) {
  return communicator
      .AllReduce(data->data(), data->data(), data->size(), DataType::kFloat32, ReduceOp::kSum)
      ->Wait();
}

absl::Status Groups(const WorldOptions& options) {
  ASSIGN_OR_RETURN(const auto world, CreateWorldCommunicator(options));
  // Groups of the first and second half of the ranks, and of the ranks with equal positions in
  // both.
  const uint32_t half = options.world_size / 2;
  const uint32_t row = options.rank / half;
  const uint32_t column = options.rank % half;
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < half; ++i) rows.push_back(row * half + i);
  ASSIGN_OR_RETURN(const auto in_row, CreateGroupCommunicator(options, "ROW", row, rows));
  // In an order that differs from the world's.
  ASSIGN_OR_RETURN(const auto in_column,
                   CreateGroupCommunicator(options, "COLUMN", column, {half + column, column}));
  std::vector<float> of_world(300000, static_cast<float>(options.rank));
  std::vector<float> of_row = of_world;
  std::vector<float> of_column = of_world;
  std::vector<std::shared_ptr<Work>> works;
  const auto sum = [&works](Communicator& communicator, std::vector<float>* data) {
    works.push_back(communicator.AllReduce(data->data(), data->data(), data->size(),
                                           DataType::kFloat32, ReduceOp::kSum));
  };
  sum(*world, &of_world);
  sum(*in_column, &of_column);
  sum(*in_row, &of_row);
  for (const auto& work : works) RETURN_IF_ERROR(work->Wait());
  return absl::UnknownError(absl::StrCat(world->backend(), " ", of_world.back(), " ", of_row.back(),
                                         " ", of_column.back(), " place ", in_column->rank()));
}

// Starts a process that waits until this one is stopped, continues it after `duration`, and then
// sets a key in the key store.
void ContinueOnceStopped(absl::Duration duration, KeyStore* store) {
  const pid_t stopped = getpid();
  if (fork() != 0) return;
  for (std::string pid, name, state; state != "T"; absl::SleepFor(absl::Milliseconds(10))) {
    std::ifstream(absl::StrCat("/proc/", stopped, "/stat")) >> pid >> name >> state;
  }
  absl::SleepFor(duration);
  kill(stopped, SIGCONT);
  _exit(store->Put("resumed", "").ok() ? 0 : 1);
}

absl::Status Resumed(WorldOptions options) {
  const bool victim = options.rank + 1 == options.world_size;
  if (victim) {
    ContinueOnceStopped(1.5 * options.timeout, options.store);
  } else {
    options.timeout = absl::Seconds(60);
  }
  ASSIGN_OR_RETURN(const auto world, CreateWorldCommunicator(options));
  std::vector<float> data(1 << 20, 1.0f);
  RETURN_IF_ERROR(Sum(*world, &data));
  if (!victim) {
    RETURN_IF_ERROR(options.store->Get("resumed", absl::Seconds(60)).status());
    return Sum(*world, &data);
  }
  const auto work =
      world->AllReduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
  raise(SIGSTOP);
  return work->Wait();
}

absl::Status Fault(const WorldOptions& options, const std::string& what) {
  const bool victim = options.rank + 1 == options.world_size;
  if (victim && what == "absent") {
    // The others fail and exit, upon which mpirun ends this process.
    FileKeyStore(std::getenv("MUSTER_TEST_KEYS"))
        .Get("never", absl::Seconds(60))
        .status()
        .IgnoreError();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto world, CreateWorldCommunicator(options));
  std::vector<float> data(1 << 20, 1.0f);
  RETURN_IF_ERROR(Sum(*world, &data));
  if (victim) {
    const auto work =
        world->AllReduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    if (what == "killed") raise(SIGKILL);
    if (what == "stopped") raise(SIGSTOP);
    if (what == "failed") {
      const auto never = world->Recv(data.data(), 1, DataType::kFloat32, 0);
      world->Abort(absl::AbortedError("out of order"));
      const absl::Status status = never->Wait();
      // The all-reduce may read `data` until it is done.
      work->Wait().IgnoreError();
      return status;
    }
    return work->Wait();
  }
  absl::Status status;
  while (status.ok()) status = Sum(*world, &data);
  return status;
}

int Main(int argc, char** argv) {
  FileKeyStore store(std::getenv("MUSTER_TEST_KEYS"));
  WorldOptions options;
  options.backend = "mpi";
  options.rank = MpirunVariable("OMPI_COMM_WORLD_RANK");
  options.world_size = MpirunVariable("OMPI_COMM_WORLD_SIZE");
  options.ranks_on_node = {options.world_size};
  options.store = &store;
  const std::string what = argc > 1 ? argv[1] : "";
  absl::ParseDuration(argc > 2 ? argv[2] : "20s", &options.timeout);
  options.connect_timeout = what == "absent" ? options.timeout : absl::Seconds(60);
  const absl::Time start = absl::Now();
  const absl::Status status = what == "groups"    ? Groups(options)
                              : what == "resumed" ? Resumed(options)
                                                  : Fault(options, what);
  // A single write, so that lines of several ranks do not interleave.
  std::cout << absl::StrCat("rank ", options.rank, " after ",
                            absl::ToInt64Milliseconds(absl::Now() - start),
                            " ms: ", status.ToString(), "\n")
            << std::flush;
  return what == "groups" || what == "resumed" ? 0 : 3;
}

}  // namespace
}  // namespace muster::collectives

int main(int argc, char** argv) { return muster::collectives::Main(argc, argv); }
