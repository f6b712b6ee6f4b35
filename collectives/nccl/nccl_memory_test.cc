// Registration of memory with NCCL and its deregistration. The fake library ends the process if
// registered memory is freed, or a communicator is destroyed that still has registered memory.
#include "collectives/nccl/nccl_memory.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/nccl/nccl.h"
#include "collectives/nccl/nccl_config.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kCount = 3000;

class LogLines final : public google::LogSink {
 public:
  LogLines() { google::AddLogSink(this); }
  ~LogLines() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int, const struct ::tm*,
            const char* message, size_t length) override {
    absl::MutexLock lock(&mutex_);
    lines_.emplace_back(message, length);
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

class NcclMemoryTest : public ::testing::Test {
 protected:
  GroupOptions Options(uint32_t rank, uint32_t size) {
    GroupOptions options;
    options.name = "WORLD";
    options.id = "id";
    options.rank = rank;
    options.size = size;
    for (uint32_t i = 0; i < size; ++i) options.members.push_back(i);
    options.store = &store_;
    options.nccl = &parts_;
    options.levels_of = levels_of_;
    options.timeout = timeout_;
    return options;
  }

  // Allocates, reduces, frees and allocates again; the last allocation lives as long as the
  // communicator.
  absl::Status Use(uint32_t rank, uint32_t size) {
    ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(rank, size)));
    std::unique_ptr<Allocation> kept;
    for (int round = 0; round < 3; ++round) {
      ASSIGN_OR_RETURN(auto allocation, communicator->Allocate(kCount * sizeof(float)));
      if (allocation->size_bytes() != kCount * sizeof(float)) {
        return absl::InternalError("another size");
      }
      auto* const data = static_cast<float*>(allocation->data());
      std::fill(data, data + kCount, 1.0f);
      RETURN_IF_ERROR(
          communicator->AllReduce(data, data, kCount, DataType::kFloat32, ReduceOp::kSum)->Wait());
      if (data[kCount - 1] != static_cast<float>(size)) return absl::InternalError("another sum");
      kept = std::move(allocation);
    }
    return absl::OkStatus();
  }

  // Returns the log lines of ranks that use memory in this way.
  std::vector<std::string> LinesOf(const std::string& library, uint32_t size) {
    LogLines lines;
    parts_ = FakeNcclParts(nullptr, library);
    EXPECT_THAT(RunRankThreads(size, [&](uint32_t rank) { return Use(rank, size); }), Each(""));
    return lines.lines();
  }

  FakeNcclRules rules_;
  FileKeyStore store_;
  NcclParts parts_ = FakeNcclParts();
  uint32_t levels_of_ = 0;
  absl::Duration timeout_ = absl::Seconds(20);
};

TEST_F(NcclMemoryTest, UsesWindowsWhereSupported) {
  const std::string line =
      "WORLD: NCCL 2.28.9, memory registered as windows (ncclCommWindowRegister)";
  EXPECT_THAT(LinesOf("libfake_nccl.so", 2), ElementsAre(line, line));
}

TEST_F(NcclMemoryTest, OlderLibrariesRegisterMemory) {
  EXPECT_THAT(LinesOf("libfake_nccl_2.23.so", 1),
              ElementsAre("WORLD: NCCL 2.23.4, registered memory (ncclCommRegister)"));
}

TEST_F(NcclMemoryTest, UsesPlainMemoryWithoutRegistration) {
  EXPECT_THAT(LinesOf("libfake_nccl_2.18.so", 1),
              ElementsAre("WORLD: NCCL 2.18.5, plain device memory (this version cannot register "
                          "memory)"));
}

TEST_F(NcclMemoryTest, LogsUnusedWindows) {
  rules_.Become({"no_windows"});
  EXPECT_THAT(LinesOf("libfake_nccl.so", 1), Each(HasSubstr("which NCCL does not use")));
}

TEST_F(NcclMemoryTest, RegistersWithAllHierarchyLevels) {
  levels_of_ = 2;
  EXPECT_THAT(RunRankThreads(4, [&](uint32_t rank) { return Use(rank, 4); }), Each(""));
}

// After an abort NCCL has deregistered all memory, which stays valid until its owner frees it.
TEST_F(NcclMemoryTest, MemoryOutlivesAbort) {
  const auto results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(rank, 2)));
    ASSIGN_OR_RETURN(auto allocation, communicator->Allocate(kCount * sizeof(float)));
    auto* const data = static_cast<float*>(allocation->data());
    RETURN_IF_ERROR(communicator->Barrier()->Wait());
    if (rank == 0) {
      const auto work = communicator->Broadcast(data, kCount, DataType::kFloat32, 1);
      communicator->Abort(absl::AbortedError("the generation has ended"));
      if (!absl::IsAborted(work->Wait())) return absl::InternalError("not aborted");
    }
    std::fill(data, data + kCount, 1.0f);
    allocation.reset();
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(""));
}

// The other ranks wait in the registration for the one without memory, as long as for any peer.
TEST_F(NcclMemoryTest, TimesOutWhenPeerDoesNotAllocate) {
  timeout_ = absl::Milliseconds(300);
  const auto results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(rank, 2)));
    if (rank == 1) return store_.Get("over", absl::Seconds(20)).status();
    const absl::Status status = communicator->Allocate(100).status();
    RETURN_IF_ERROR(store_.Put("over", ""));
    return status;
  });
  EXPECT_THAT(results[0], HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(results[0], HasSubstr("ncclCommWindowRegister made no progress"));
}

// The tests rely on the fake library to detect misuse.
TEST_F(NcclMemoryTest, FakeNcclDetectsMisuse) {
  const NcclLibrary& nccl = *parts_.library;
  ASSERT_NE(nccl.window_register, nullptr);
  NcclUniqueId id = {};
  NcclConfig config = MakeNcclConfig();
  NcclComm comm = nullptr;
  ASSERT_EQ(nccl.make_unique_id(&id), kNcclSuccess);
  const auto settle = [&nccl, &comm] {
    NcclResult state = kNcclInProgress;
    while (state == kNcclInProgress) ASSERT_EQ(nccl.async_error(comm, &state), kNcclSuccess);
    ASSERT_EQ(state, kNcclSuccess);
  };
  ASSERT_EQ(nccl.init_rank(&comm, 1, id, 0, &config), kNcclInProgress);
  settle();
  void* data = nullptr;
  ASSERT_EQ(nccl.mem_alloc(&data, 8192), kNcclSuccess);
  NcclWindow window = nullptr;
  ASSERT_EQ(nccl.window_register(comm, data, 8192, &window, kNcclWindowSymmetric), kNcclSuccess);
  EXPECT_EQ(window, nullptr);
  NcclResult state = kNcclSuccess;
  ASSERT_EQ(nccl.async_error(comm, &state), kNcclSuccess);
  EXPECT_EQ(state, kNcclInProgress);
  EXPECT_DEATH(nccl.finalize(comm), "ncclCommFinalize before ncclCommWindowRegister has settled");
  settle();
  EXPECT_NE(window, nullptr);
  EXPECT_DEATH(nccl.mem_free(data), "ncclMemFree of registered memory");
  EXPECT_DEATH(nccl.mem_free(&id), "ncclMemFree of foreign memory");
  EXPECT_DEATH(nccl.destroy(comm), "ncclCommDestroy with memory registered");
  EXPECT_DEATH(nccl.comm_register(comm, &id, 8, &window), "registers foreign memory");
  ASSERT_EQ(nccl.window_deregister(comm, window), kNcclSuccess);
  EXPECT_DEATH(nccl.window_deregister(comm, window), "deregisters unregistered memory");
  ASSERT_EQ(nccl.mem_free(data), kNcclSuccess);
  ASSERT_EQ(nccl.abort(comm), kNcclSuccess);
}

TEST_F(NcclMemoryTest, AllocationFailureKeepsCommunicatorUsable) {
  rules_.Become({"no_memory"});
  const auto results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(rank, 2)));
    const absl::Status status = communicator->Allocate(100).status();
    RETURN_IF_ERROR(communicator->Barrier()->Wait());
    return status;
  });
  EXPECT_THAT(results, Each(HasSubstr("RESOURCE_EXHAUSTED: NCCL: cannot allocate 100 bytes")));
}

}  // namespace
}  // namespace muster::collectives
