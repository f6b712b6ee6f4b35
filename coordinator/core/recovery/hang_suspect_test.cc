#include "coordinator/core/recovery/hang_suspect.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Stacks as shims report them.
constexpr char kAllReduce[] =
    "main thread, Python:\n"
    "  all_reduce (torch/distributed/distributed_c10d.py:1320)\n"
    "  main (train.py:30)\n"
    "main thread:\n"
    "  pthread_cond_wait+0x1e8 (libc.so.6)\n"
    "  c10d::Work::wait(std::chrono::duration<long>)+0x63 (libtorch_cpu.so)\n";
constexpr char kBarrier[] =
    "main thread, Python:\n"
    "  barrier (torch/distributed/distributed_c10d.py:2780)\n"
    "main thread:\n"
    "  c10d::Work::wait(std::chrono::duration<long>)+0x63 (libtorch_cpu.so)\n";
// Without py-spy; the library's names of all_reduce are stripped.
constexpr char kNativeAllReduce[] =
    "main thread:\n"
    "  pthread_cond_wait+0x1e8 (libc.so.6)\n"
    "  c10d::Work::wait(std::chrono::duration<long>)+0x63 (libtorch_cpu.so)\n"
    "thread 17437:\n"
    "  pthread_cond_clockwait+0x21f (libc.so.6)\n"
    "  gloo::transport::tcp::UnboundBuffer::waitRecv(int*)+0x15b (libgloo.so.0)\n"
    "  libgloo.so.0+0x2f8f7\n"
    "  libtorch_cpu.so+0x1466000\n"
    "  c10d::ProcessGroupGloo::AsyncWork::execute(intrusive_ptr)+0x3d (libtorch_cpu.so)\n"
    "  c10d::ProcessGroupGloo::runLoop(int)+0xe4 (libtorch_cpu.so)\n";
constexpr char kNativeBarrier[] =
    "main thread:\n"
    "  c10d::Work::wait(std::chrono::duration<long>)+0x63 (libtorch_cpu.so)\n"
    "thread 17435:\n"
    "  gloo::transport::tcp::UnboundBuffer::waitRecv(int*)+0x15b (libgloo.so.0)\n"
    "  gloo::barrier(gloo::BarrierOptions&)+0xaa (libgloo.so.0)\n"
    "  libtorch_cpu.so+0x1477000\n"
    "  c10d::ProcessGroupGloo::AsyncWork::execute(intrusive_ptr)+0x3d (libtorch_cpu.so)\n";
constexpr char kLock[] =
    "main thread:\n"
    "  sem_wait+0x57 (libc.so.6)\n"
    "  PyThread_acquire_lock_timed+0xa9 (python3.11)\n"
    "  _PyEval_EvalFrameDefault+0x8f0 (python3.11)\n";
constexpr char kLoader[] =
    "main thread:\n"
    "  poll+0x4f (libc.so.6)\n"
    "  _PyEval_EvalFrameDefault+0x8f0 (python3.11)\n";
constexpr char kCuda[] =
    "main thread:\n"
    "  libcuda.so.1+0x1234\n"
    "  cudaStreamSynchronize+0x1a (libcudart.so.12)\n";

struct Rank {
  std::string state;
  std::string waits_in;
  std::string stack;
  double cpu_ratio = 0;
};
const Rank kNoAnswer = {};

Suspicion Find(const std::vector<Rank>& ranks) {
  std::vector<SilentRank> silent;
  for (const Rank& rank : ranks) {
    SilentRank& added = silent.emplace_back();
    added.rank = static_cast<uint32_t>(silent.size() - 1);
    added.node = absl::StrCat("n", added.rank / 2);
    if (rank.state.empty()) continue;
    v1::RankInspection& inspection = added.inspection.emplace();
    inspection.set_rank(added.rank);
    inspection.set_state(rank.state);
    inspection.set_waits_in(rank.waits_in);
    inspection.set_stack(rank.stack);
    inspection.set_cpu_ratio(rank.cpu_ratio);
  }
  return FindSuspect(silent);
}

const Rank kInAllReduce = {"sleeping", "futex", kAllReduce};
const Rank kInBarrier = {"sleeping", "futex", kBarrier};
const Rank kInNativeAllReduce = {"sleeping", "futex", kNativeAllReduce};
const Rank kInNativeBarrier = {"sleeping", "futex", kNativeBarrier};
const Rank kInSomeCollective = {"sleeping", "futex",
                                "main thread:\n  c10d::Work::wait(int)+0x63 (libtorch_cpu.so)\n"};
const Rank kOnFutex = {"sleeping", "futex", ""};

TEST(HangSuspectTest, FindsRankByKindOfHang) {
  struct Case {
    const char* name;
    std::vector<Rank> ranks;
    uint32_t suspect;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"stopped",
       {kInAllReduce, {"stopped", "", kAllReduce}, kInAllReduce, kInAllReduce},
       1,
       "rank 1 on n0 is stopped by a signal or a debugger"},
      {"stopped, of ranks that do not wait",
       {{"sleeping", "poll", ""}, {"sleeping", "poll", ""}, {"stopped", "", ""}},
       2,
       "rank 2 on n1 is stopped"},
      {"gone", {kInAllReduce, {"gone", "", ""}}, 1, "rank 1 on n0 has no running process"},
      {"sleep",
       {kInAllReduce, kInAllReduce, {"sleeping", "sleep", "main thread:\n  clock_nanosleep\n"}},
       2,
       "rank 2 on n1 sleeps, while 2 other ranks wait in all_reduce"},
      {"sleep in Python",
       {kInAllReduce,
        {"sleeping", "sleep", "main thread, Python:\n  load (data.py:7)\n  main (train.py:3)\n"}},
       1,
       "rank 1 on n0 sleeps at load (data.py:7), while rank 0 on n0 waits in all_reduce"},
      {"deadlock",
       {kInNativeAllReduce, {"sleeping", "futex", kLock}, kInNativeAllReduce, kInNativeAllReduce},
       1,
       "rank 1 on n0 waits for a lock or another thread, while 3 other ranks wait in a collective"},
      {"data loader",
       {{"sleeping", "pipe", kLoader}, kInNativeAllReduce},
       0,
       "rank 0 on n0 waits for a pipe"},
      {"endless loop",
       {kInNativeAllReduce, kInNativeAllReduce, {"running", "", "", 0.98}},
       2,
       "rank 2 on n1 runs code and uses 98% CPU, while"},
      {"disk",
       {kInAllReduce, {"disk", "", "main thread:\n  read+0x4 (libc.so.6)\n"}},
       1,
       "rank 1 on n0 waits for a disk or a network file system"},
      {"another collective",
       {kInAllReduce, kInAllReduce, kInBarrier, kInAllReduce},
       2,
       "rank 2 on n1 waits in barrier at barrier (torch/distributed/distributed_c10d.py:2780), "
       "while 3 other ranks wait in all_reduce"},
      {"another collective, without py-spy",
       {kInNativeAllReduce, kInNativeBarrier, kInNativeAllReduce, kInNativeAllReduce},
       1,
       "rank 1 on n0 waits in barrier, while 3 other ranks wait in a collective"},
      {"a collective that the library's names do not show, without py-spy",
       {kInNativeBarrier, kInNativeAllReduce, kInNativeBarrier},
       1,
       "rank 1 on n0 waits in a collective"},
      {"another collective, one stack incomplete",
       {kInNativeAllReduce, kInNativeBarrier, kInNativeAllReduce, kInSomeCollective},
       1,
       "rank 1 on n0 waits in barrier, while 2 other ranks wait in a collective"},
      {"another collective, most stacks incomplete",
       {kInSomeCollective, kInNativeBarrier, kInSomeCollective, kInSomeCollective},
       1,
       "rank 1 on n0 waits in barrier, while 3 other ranks wait in collectives"},
      {"GPU ranks that spin",
       {{"running", "", kCuda, 1}, {"running", "", kCuda, 1}, {"sleeping", "poll", kLoader}},
       2,
       "rank 2 on n1 waits for input"},
      {"no answer, others wait",
       {kInAllReduce, kInAllReduce, kNoAnswer},
       2,
       "rank 2 on n1 has not been inspected, because its node did not answer"},
      {"no answer, but another rank sleeps",
       {kInAllReduce, {"sleeping", "sleep", ""}, kNoAnswer},
       1,
       "rank 1 on n0 sleeps"},
      // Evidence from /proc only, where ptrace is forbidden.
      {"sleep, no stacks", {kOnFutex, {"sleeping", "sleep", ""}}, 1, "rank 1 on n0 sleeps"},
      {"loop, no stacks", {{"running", "", "", 1}, kOnFutex}, 0, "runs code and uses 100% CPU"},
      {"data loader, no stacks", {kOnFutex, {"sleeping", "pipe", ""}}, 1, "waits for a pipe"},
      {"init, no stacks",
       {{"sleeping", "socket", ""}, {"sleeping", "socket", ""}, {"sleeping", "sleep", ""}},
       2,
       "rank 2 on n1 sleeps"},
      {"sleep among spinning ranks, no stacks",
       {{"running", "", "", 1}, {"running", "", "", 1}, {"sleeping", "sleep", ""}},
       2,
       "rank 2 on n1 sleeps"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Suspicion suspicion = Find(c.ranks);
    EXPECT_THAT(suspicion.ranks, ElementsAre(c.suspect));
    EXPECT_THAT(suspicion.message, HasSubstr(c.message));
  }
}

TEST(HangSuspectTest, NamesAllCandidatesIfNoRankStandsOut) {
  Suspicion suspicion = Find({kInAllReduce, kInBarrier});
  EXPECT_THAT(suspicion.ranks, ElementsAre(0, 1));
  EXPECT_THAT(suspicion.message,
              HasSubstr("no rank stands out: rank 0 on n0 waits in all_reduce at all_reduce"));
  EXPECT_THAT(suspicion.message, HasSubstr("; rank 1 on n0 waits in barrier"));

  EXPECT_THAT(Find({kInAllReduce, kInBarrier, kInAllReduce, kInBarrier}).ranks,
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Find({kOnFutex, kOnFutex}).ranks, ElementsAre(0, 1));
  EXPECT_THAT(Find({kNoAnswer, kNoAnswer}).ranks, ElementsAre(0, 1));
  EXPECT_THAT(Find({kInAllReduce}).ranks, ElementsAre(0));
  EXPECT_EQ(Find({{"sleeping", "sleep", ""}}).message, "rank 0 on n0 sleeps");
}

TEST(HangSuspectTest, NamesSeveralSuspects) {
  const Suspicion suspicion =
      Find({kInAllReduce, {"sleeping", "sleep", ""}, {"sleeping", "poll", kLoader}, kInAllReduce});
  EXPECT_THAT(suspicion.ranks, ElementsAre(1, 2));
  EXPECT_EQ(suspicion.message,
            "rank 1 on n0 sleeps; rank 2 on n1 waits for input, while 2 other ranks wait in "
            "all_reduce");
}

TEST(HangSuspectTest, BoundsTheMessage) {
  const Suspicion suspicion = Find(std::vector<Rank>(1000, kOnFutex));
  EXPECT_EQ(suspicion.ranks.size(), 1000u);
  EXPECT_THAT(suspicion.message, HasSubstr("; and 996 more"));
}

// A program under torch's launcher or DistributedDataParallel is not in a collective.
TEST(HangSuspectTest, IgnoresWrappersOfTorchDistributed) {
  const Suspicion suspicion =
      Find({kInAllReduce,
            {"sleeping", "futex",
             "main thread, Python:\n  acquire (lock.py:3)\n"
             "  wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:346)\n"}});
  EXPECT_THAT(suspicion.ranks, ElementsAre(1));
}

}  // namespace
}  // namespace muster::core
