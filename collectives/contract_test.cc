// The contract of every backend, on groups of several sizes. Values are integers small enough for
// every type, so that sums are exact and need no tolerance. Ranks are processes, except for
// loopback, whose ranks are threads. A process started by mpirun is one rank of the mpi backend and
// runs its part of every case (tests/e2e/mpi_launcher_test.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "kernels/contract/kernel_set.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/cuda/device.h"
#include "kernels/half.h"

namespace muster::collectives {
namespace {

struct Backend {
  std::string name;
  std::vector<uint32_t> ranks_on_node;

  uint32_t size() const { return std::accumulate(ranks_on_node.begin(), ranks_on_node.end(), 0u); }
};

void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

// Value of a variable that mpirun sets for its processes; 0 in other processes.
uint32_t MpirunVariable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? 0 : static_cast<uint32_t>(std::atoi(value));
}

// mpirun's processes share the keys of a test in a directory of that name.
std::unique_ptr<FileKeyStore> MakeKeyStore() {
  const char* const folder = std::getenv("MUSTER_TEST_KEYS");
  if (folder == nullptr) return std::make_unique<FileKeyStore>();
  std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(name.begin(), name.end(), '/', '-');
  return std::make_unique<FileKeyStore>(absl::StrCat(folder, "/", name));
}

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64, DataType::kBfloat16,
                               DataType::kFloat16, DataType::kInt32,   DataType::kInt64,
                               DataType::kUint8};
// Empty, fewer than ranks, odd, slightly more than a chunk, several chunks.
constexpr size_t kCounts[] = {0, 1, 3, 1001, 65537, 700001};

using Values = std::vector<double>;
// Stored where the backend under test can access it.
template <typename T>
using Buffer = kernels::TestVector<T>;
using Bytes = Buffer<std::byte>;

void EncodeOne(DataType type, double value, std::byte* to) {
  auto store = [to](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
  switch (type) {
    case DataType::kFloat32:
      return store(static_cast<float>(value));
    case DataType::kFloat64:
      return store(value);
    case DataType::kBfloat16:
      return store(kernels::ToBfloat16(static_cast<float>(value)));
    case DataType::kFloat16:
      return store(kernels::ToFloat16(static_cast<float>(value)));
    case DataType::kInt32:
      return store(static_cast<int32_t>(value));
    case DataType::kInt64:
      return store(static_cast<int64_t>(value));
    case DataType::kUint8:
      return store(static_cast<uint8_t>(value));
  }
}

Bytes Encode(DataType type, const Values& values) {
  Bytes bytes(values.size() * SizeOf(type));
  for (size_t i = 0; i < values.size(); ++i) {
    EncodeOne(type, values[i], bytes.data() + i * SizeOf(type));
  }
  return bytes;
}

// Element i of `rank`'s input.
double Contribution(uint32_t rank, size_t i) { return (rank + 1) * (i % 5 + 1); }

Values Contributions(uint32_t rank, size_t count, size_t first = 0) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Contribution(rank, first + i);
  return values;
}

double Reduced(uint32_t size, size_t i, ReduceOp op) {
  double result = Contribution(0, i);
  for (uint32_t rank = 1; rank < size; ++rank) {
    const double value = Contribution(rank, i);
    if (op == ReduceOp::kSum) result += value;
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
  }
  return result;
}

Values ReducedAll(uint32_t size, size_t count, ReduceOp op, size_t first = 0) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Reduced(size, first + i, op);
  return values;
}

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(absl::StrCat("expected: ", what));
}

absl::Status ExpectBytes(const void* actual, const Bytes& expected, const std::string& what) {
  const bool equal = expected.empty() || std::memcmp(actual, expected.data(), expected.size()) == 0;
  return Expect(equal, absl::StrCat("correct values: ", what));
}

class ContractTest : public ::testing::TestWithParam<Backend> {
 protected:
  struct Rank {
    uint32_t rank;
    uint32_t size;
    KeyStore* store;
    Communicator* communicator;
  };
  using Body = std::function<absl::Status(Rank)>;

  void SetUp() override {
#if defined(__has_feature) && __has_feature(thread_sanitizer)
    // Its synchronization is invisible, and the search for a suppression of each supposed race
    // takes seconds in each rank.
    if (GetParam().name == "gloo" || GetParam().name == "hierarchical") {
      GTEST_SKIP() << "the system's Gloo is not instrumented";
    }
#endif
    if (!on_gpu()) return;
    // Uses a separate process: CUDA does not support fork.
    const std::string opened =
        RunRankProcesses(1, [](uint32_t) { return RankGpu::Open(0).status(); }).front();
    if (!opened.empty()) GTEST_SKIP() << opened;
  }

  bool under_mpirun() const { return GetParam().name == "mpi"; }
  bool threads() const { return GetParam().name == "loopback"; }
  bool on_gpu() const { return GetParam().name == "nccl_on_gpu"; }

  // All ranks use this machine's first GPU, which NCCL accepts for ranks on different hosts.
  struct RankGpu {
    static absl::StatusOr<std::unique_ptr<RankGpu>> Open(uint32_t rank) {
      setenv("NCCL_HOSTID", absl::StrCat("rank-", rank).c_str(), 1);
      ASSIGN_OR_RETURN(const auto use, kernels::UseKernelSet(kernels::KernelSet::kCuda));
      kernels::test_memory = use.memory;
      auto gpu = std::make_unique<RankGpu>();
      ASSIGN_OR_RETURN(gpu->device, kernels::OpenCudaDevice(0, kernels::CudaLibraryOfTests()));
      ASSIGN_OR_RETURN(gpu->parts.library, OpenNcclLibrary());
      gpu->parts.make_stream = [device = gpu->device.get()] { return device->MakeStream(); };
      return gpu;
    }
    std::unique_ptr<kernels::Device> device;
    NcclParts parts;
  };

  WorldOptions Options(uint32_t rank) {
    WorldOptions options;
    options.backend = GetParam().name;
    options.rank = rank;
    options.world_size = GetParam().size();
    options.ranks_on_node = GetParam().ranks_on_node;
    options.store = store_.get();
    options.interface_address = "127.0.0.1";
    options.timeout = timeout_;
    if (options.backend == "nccl_levels") {
      options.backend = "nccl";
      options.hierarchical = "on";
    }
    if (options.backend == "nccl") {
      nccl_ = FakeNcclParts();
      options.nccl = &nccl_;
    }
    return options;
  }

  // mpirun ends all processes when one exits after a failure, so they exit when all have reported
  // their result.
  std::string RunUnderMpirun(const std::function<absl::Status(uint32_t)>& body) {
    const uint32_t rank = MpirunVariable("OMPI_COMM_WORLD_RANK");
    absl::Status status = body(rank);
    status.Update(store_->Put(absl::StrCat("ended/", rank), status.ToString()));
    for (uint32_t i = 0; i < GetParam().size(); ++i) {
      status.Update(store_->Get(absl::StrCat("ended/", i), absl::Seconds(20)).status());
    }
    return status.ok() ? "" : status.ToString();
  }

  std::vector<std::string> RunEach(const std::function<absl::Status(uint32_t)>& body) {
    if (under_mpirun()) return {RunUnderMpirun(body)};
    return threads() ? RunRankThreads(GetParam().size(), body)
                     : RunRankProcesses(GetParam().size(), body);
  }

  // Runs `body` on each rank with its communicator.
  std::vector<std::string> Results(const Body& body) {
    return RunEach([&](uint32_t rank) -> absl::Status {
      std::unique_ptr<RankGpu> gpu;
      WorldOptions options = Options(rank);
      if (on_gpu()) {
        ASSIGN_OR_RETURN(gpu, RankGpu::Open(rank));
        options.backend = "nccl";
        options.nccl = &gpu->parts;
      }
      ASSIGN_OR_RETURN(auto communicator, CreateWorldCommunicator(options));
      RETURN_IF_ERROR(body({rank, GetParam().size(), store_.get(), communicator.get()}));
      return absl::OkStatus();
    });
  }

  void Run(const Body& body) {
    const std::vector<std::string> results = Results(body);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank], "") << "rank " << rank;
    }
  }

  const std::unique_ptr<FileKeyStore> store_ = MakeKeyStore();
  NcclParts nccl_;  // parts of one rank, in its process
  absl::Duration timeout_ = absl::Seconds(20);
};

absl::Status TestAllReduce(Communicator& c, size_t count, DataType type, ReduceOp op) {
  const std::string what = absl::StrCat("AllReduce of ", count, " of type ", static_cast<int>(type),
                                        ", operator ", static_cast<int>(op));
  const Bytes send = Encode(type, Contributions(c.rank(), count));
  const Bytes expected = Encode(type, ReducedAll(c.size(), count, op));
  Bytes recv(send.size());
  RETURN_IF_ERROR(c.AllReduce(send.data(), recv.data(), count, type, op)->Wait());
  RETURN_IF_ERROR(ExpectBytes(recv.data(), expected, what));
  Bytes data = send;
  RETURN_IF_ERROR(c.AllReduce(data.data(), data.data(), count, type, op)->Wait());
  return ExpectBytes(data.data(), expected, what + " in place");
}

TEST_P(ContractTest, AllReduceHandlesEveryCount) {
  Run([](Rank rank) {
    for (const size_t count : kCounts) {
      RETURN_IF_ERROR(TestAllReduce(*rank.communicator, count, DataType::kFloat32, ReduceOp::kSum));
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, AllReduceHandlesEveryTypeAndOperator) {
  Run([](Rank rank) {
    for (const DataType type : kTypes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
        for (const size_t count : {size_t{7}, size_t{70001}}) {
          RETURN_IF_ERROR(TestAllReduce(*rank.communicator, count, type, op));
        }
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, AllReduceUsesAllocatedMemory) {
  if (on_gpu()) GTEST_SKIP() << "GPU memory cannot be checked here; training tests use it";
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    const size_t count = 300007;
    const Bytes values = Encode(DataType::kFloat32, Contributions(c.rank(), count));
    const Bytes expected = Encode(DataType::kFloat32, ReducedAll(c.size(), count, ReduceOp::kSum));
    for (int round = 0; round < 2; ++round) {
      ASSIGN_OR_RETURN(const auto small, c.Allocate(100));
      ASSIGN_OR_RETURN(const auto send, c.Allocate(values.size() + 64));
      ASSIGN_OR_RETURN(const auto recv, c.Allocate(values.size()));
      RETURN_IF_ERROR(Expect(send->size_bytes() == values.size() + 64, "the requested size"));
      // At an offset, like a bucket.
      auto* const data = static_cast<std::byte*>(send->data()) + 64;
      std::memcpy(data, values.data(), values.size());
      RETURN_IF_ERROR(
          c.AllReduce(data, recv->data(), count, DataType::kFloat32, ReduceOp::kSum)->Wait());
      RETURN_IF_ERROR(ExpectBytes(recv->data(), expected, "allocated"));
      RETURN_IF_ERROR(ExpectBytes(data, values, "send buffer unchanged"));
      RETURN_IF_ERROR(c.AllReduce(data, data, count, DataType::kFloat32, ReduceOp::kSum)->Wait());
      RETURN_IF_ERROR(ExpectBytes(data, expected, "allocated, in place"));
      // Some ranks use private memory, others allocations.
      Bytes own = values;
      std::memcpy(data, values.data(), values.size());
      void* const mixed = c.rank() % 2 == 0 ? static_cast<void*>(data) : own.data();
      RETURN_IF_ERROR(c.AllReduce(mixed, mixed, count, DataType::kFloat32, ReduceOp::kSum)->Wait());
      RETURN_IF_ERROR(ExpectBytes(mixed, expected, "mixed memory"));
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, AllocateReturnsResourceExhausted) {
  Run([](Rank rank) {
    const auto allocation = rank.communicator->Allocate(size_t{1} << 60);
    return Expect(absl::IsResourceExhausted(allocation.status()), "RESOURCE_EXHAUSTED");
  });
}

TEST_P(ContractTest, ReduceScatterAndAllGather) {
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    const DataType type = DataType::kFloat32;
    for (const size_t count : kCounts) {
      const Bytes all = Encode(type, Contributions(c.rank(), count * c.size()));
      const Bytes sums = Encode(type, ReducedAll(c.size(), count * c.size(), ReduceOp::kSum));
      const size_t part_bytes = count * SizeOf(type);
      const Bytes own_sums(sums.begin() + c.rank() * part_bytes,
                           sums.begin() + (c.rank() + 1) * part_bytes);
      Bytes part(part_bytes);
      RETURN_IF_ERROR(
          c.ReduceScatter(all.data(), part.data(), count, type, ReduceOp::kSum)->Wait());
      RETURN_IF_ERROR(ExpectBytes(part.data(), own_sums, "ReduceScatter"));
      Bytes gathered(all.size());
      RETURN_IF_ERROR(c.AllGather(part.data(), gathered.data(), count, type)->Wait());
      RETURN_IF_ERROR(ExpectBytes(gathered.data(), sums, "AllGather"));
      // The rank's own segment of a single buffer.
      Bytes data = all;
      std::byte* const own = data.data() + c.rank() * part_bytes;
      RETURN_IF_ERROR(c.ReduceScatter(data.data(), own, count, type, ReduceOp::kSum)->Wait());
      RETURN_IF_ERROR(c.AllGather(own, data.data(), count, type)->Wait());
      RETURN_IF_ERROR(ExpectBytes(data.data(), sums, "ReduceScatter and AllGather in place"));
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, RootedOperationsWorkForEveryRoot) {
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    const DataType type = DataType::kFloat32;
    for (const size_t count : {size_t{0}, size_t{5}, size_t{100003}}) {
      const Bytes own = Encode(type, Contributions(c.rank(), count));
      Bytes all_inputs;
      for (uint32_t i = 0; i < c.size(); ++i) {
        const Bytes part = Encode(type, Contributions(i, count));
        all_inputs.insert(all_inputs.end(), part.begin(), part.end());
      }
      for (uint32_t root = 0; root < c.size(); ++root) {
        const bool is_root = root == c.rank();
        const Bytes roots = Encode(type, Contributions(root, count));
        Bytes data = own;
        RETURN_IF_ERROR(c.Broadcast(data.data(), count, type, root)->Wait());
        RETURN_IF_ERROR(ExpectBytes(data.data(), roots, "Broadcast"));

        const Bytes sums = Encode(type, ReducedAll(c.size(), count, ReduceOp::kSum));
        Bytes reduced(own.size());
        RETURN_IF_ERROR(c.Reduce(own.data(), is_root ? reduced.data() : nullptr, count, type,
                                 ReduceOp::kSum, root)
                            ->Wait());
        if (is_root) RETURN_IF_ERROR(ExpectBytes(reduced.data(), sums, "Reduce"));
        data = own;
        RETURN_IF_ERROR(
            c.Reduce(data.data(), data.data(), count, type, ReduceOp::kSum, root)->Wait());
        RETURN_IF_ERROR(ExpectBytes(data.data(), is_root ? sums : own, "Reduce in place"));

        Bytes gathered(is_root ? all_inputs.size() : 0);
        RETURN_IF_ERROR(
            c.Gather(own.data(), is_root ? gathered.data() : nullptr, count, type, root)->Wait());
        if (is_root) RETURN_IF_ERROR(ExpectBytes(gathered.data(), all_inputs, "Gather"));

        Bytes part(own.size());
        RETURN_IF_ERROR(
            c.Scatter(is_root ? all_inputs.data() : nullptr, part.data(), count, type, root)
                ->Wait());
        RETURN_IF_ERROR(ExpectBytes(part.data(), own, "Scatter"));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, AllToAll) {
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    const DataType type = DataType::kInt32;
    // Distinct for each pair of ranks.
    auto value = [](uint32_t from, uint32_t to, size_t i) {
      return from * 1e6 + to * 1e5 + i % 999;
    };
    for (const size_t count : {size_t{0}, size_t{9}, size_t{100003}}) {
      Values sent;
      Values expected;
      for (uint32_t peer = 0; peer < c.size(); ++peer) {
        for (size_t i = 0; i < count; ++i) {
          sent.push_back(value(c.rank(), peer, i));
          expected.push_back(value(peer, c.rank(), i));
        }
      }
      const Bytes send = Encode(type, sent);
      Bytes recv(send.size());
      RETURN_IF_ERROR(c.AllToAll(send.data(), recv.data(), count, type)->Wait());
      RETURN_IF_ERROR(ExpectBytes(recv.data(), Encode(type, expected), "AllToAll"));
      Bytes data = send;
      RETURN_IF_ERROR(c.AllToAll(data.data(), data.data(), count, type)->Wait());
      RETURN_IF_ERROR(ExpectBytes(data.data(), Encode(type, expected), "AllToAll in place"));
    }
    return absl::OkStatus();
  });
}

// Every rank sends before it receives, in both directions around the ring at once.
TEST_P(ContractTest, SendAndRecv) {
  if (GetParam().size() < 2) GTEST_SKIP() << "a rank cannot send to itself";
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    const uint32_t right = (c.rank() + 1) % c.size();
    const uint32_t left = (c.rank() + c.size() - 1) % c.size();
    for (const size_t count : {size_t{0}, size_t{1}, size_t{300007}}) {
      const Bytes own = Encode(DataType::kFloat32, Contributions(c.rank(), count));
      Bytes from_left(own.size());
      Bytes from_right(own.size());
      const std::shared_ptr<Work> works[] = {
          c.Send(own.data(), count, DataType::kFloat32, right),
          c.Send(own.data(), count, DataType::kFloat32, left),
          c.Recv(from_left.data(), count, DataType::kFloat32, left),
          c.Recv(from_right.data(), count, DataType::kFloat32, right)};
      for (const auto& work : works) RETURN_IF_ERROR(work->Wait());
      RETURN_IF_ERROR(ExpectBytes(from_left.data(),
                                  Encode(DataType::kFloat32, Contributions(left, count)), "left"));
      RETURN_IF_ERROR(ExpectBytes(
          from_right.data(), Encode(DataType::kFloat32, Contributions(right, count)), "right"));
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, MessagesStayInOrder) {
  if (GetParam().size() < 2) GTEST_SKIP() << "a rank cannot send to itself";
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    if (c.rank() > 1) return absl::OkStatus();
    Buffer<int32_t> data(200);
    std::vector<std::shared_ptr<Work>> works;
    for (int32_t i = 0; i < 200; ++i) {
      data[i] = c.rank() == 0 ? i : -1;
      works.push_back(c.rank() == 0 ? c.Send(&data[i], 1, DataType::kInt32, 1)
                                    : c.Recv(&data[i], 1, DataType::kInt32, 0));
    }
    for (const auto& work : works) RETURN_IF_ERROR(work->Wait());
    for (int32_t i = 0; i < 200; ++i) RETURN_IF_ERROR(Expect(data[i] == i, "messages in order"));
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, ConcurrentOperationsCompleteInOrder) {
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    constexpr int kWorks = 24;
    std::vector<Bytes> data(kWorks);
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kWorks; ++i) {
      const size_t count = i % 3 == 0 ? 150001 : 10 + i;
      data[i] = Encode(DataType::kFloat32, Contributions(c.rank(), count));
      works.push_back(i % 4 == 1
                          ? c.Broadcast(data[i].data(), count, DataType::kFloat32, i % c.size())
                          : c.AllReduce(data[i].data(), data[i].data(), count, DataType::kFloat32,
                                        ReduceOp::kSum));
    }
    for (int i = kWorks - 1; i >= 0; --i) {
      RETURN_IF_ERROR(works[i]->Wait());
      // Operations issued earlier complete earlier.
      for (int earlier = 0; earlier < i; ++earlier) {
        RETURN_IF_ERROR(Expect(works[earlier]->Done(), "completion in order of issue"));
      }
      const size_t count = data[i].size() / sizeof(float);
      const Values expected = i % 4 == 1 ? Contributions(i % c.size(), count)
                                         : ReducedAll(c.size(), count, ReduceOp::kSum);
      RETURN_IF_ERROR(ExpectBytes(data[i].data(), Encode(DataType::kFloat32, expected),
                                  absl::StrCat("work ", i)));
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, BarrierWaitsForAllRanks) {
  Run([](Rank rank) -> absl::Status {
    for (int round = 0; round < 3; ++round) {
      RETURN_IF_ERROR(rank.store->Put(absl::StrCat("arrived/", round, "/", rank.rank), ""));
      RETURN_IF_ERROR(rank.communicator->Barrier()->Wait());
      for (uint32_t i = 0; i < rank.size; ++i) {
        RETURN_IF_ERROR(
            rank.store->Get(absl::StrCat("arrived/", round, "/", i), absl::ZeroDuration())
                .status());
      }
    }
    return absl::OkStatus();
  });
}

// Sums of fractions depend on the order of addition, which must be the same on all ranks and in
// each run.
TEST_P(ContractTest, SumsAreBitIdenticalOnAllRanksAndRuns) {
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    for (const size_t count : {size_t{1003}, size_t{200003}}) {
      Buffer<float> send(count);
      for (size_t i = 0; i < count; ++i) {
        send[i] = std::sin(static_cast<float>(i * (c.rank() + 1))) / static_cast<float>(i % 7 + 1);
      }
      Buffer<float> first(count);
      Buffer<float> second(count);
      RETURN_IF_ERROR(
          c.AllReduce(send.data(), first.data(), count, DataType::kFloat32, ReduceOp::kSum)
              ->Wait());
      RETURN_IF_ERROR(
          c.AllReduce(send.data(), second.data(), count, DataType::kFloat32, ReduceOp::kSum)
              ->Wait());
      Buffer<float> all(count * c.size());
      RETURN_IF_ERROR(c.AllGather(first.data(), all.data(), count, DataType::kFloat32)->Wait());
      const size_t bytes = count * sizeof(float);
      RETURN_IF_ERROR(
          Expect(std::memcmp(first.data(), second.data(), bytes) == 0, "identical in both runs"));
      for (uint32_t i = 0; i < c.size(); ++i) {
        RETURN_IF_ERROR(Expect(std::memcmp(first.data(), all.data() + i * count, bytes) == 0,
                               "identical on all ranks"));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(ContractTest, RejectsInvalidArguments) {
  Run([](Rank rank) -> absl::Status {
    float value = 0;
    const absl::Status status =
        rank.communicator->Broadcast(&value, 1, DataType::kFloat32, rank.size)->Wait();
    RETURN_IF_ERROR(Expect(absl::IsInvalidArgument(status), "INVALID_ARGUMENT"));
    // The communicator has failed.
    return Expect(rank.communicator->Barrier()->Wait() == status,
                  "the same status from later operations");
  });
}

TEST_P(ContractTest, AbortEndsAllOperations) {
  if (GetParam().size() < 2) GTEST_SKIP() << "requires a peer to wait for";
  Run([](Rank rank) -> absl::Status {
    Communicator& c = *rank.communicator;
    Buffer<float> data(300007);
    if (c.rank() == 0) {  // does not take part until the others have returned
      for (uint32_t i = 1; i < c.size(); ++i) {
        RETURN_IF_ERROR(rank.store->Get(absl::StrCat("out/", i), absl::Seconds(20)).status());
      }
      return absl::OkStatus();
    }
    const auto collective =
        c.AllReduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    const auto message = c.Recv(data.data(), 1, DataType::kFloat32, 0);
    const auto queued = c.Barrier();
    // This key is never set: gives the operations time to sleep.
    rank.store->Get("never", absl::Milliseconds(100)).status().IgnoreError();
    RETURN_IF_ERROR(Expect(!collective->Done() && !message->Done(), "waiting for rank 0"));
    // Without this, a rank could lose an aborting peer before it waits.
    RETURN_IF_ERROR(rank.store->Put(absl::StrCat("waiting/", c.rank()), ""));
    for (uint32_t i = 1; i < c.size(); ++i) {
      RETURN_IF_ERROR(rank.store->Get(absl::StrCat("waiting/", i), absl::Seconds(20)).status());
    }
    const absl::Time start = absl::Now();
    c.Abort(absl::AbortedError("the generation has ended"));
    for (const auto& work : {collective, message, queued}) {
      const absl::Status status = work->Wait();
      if (c.rank() == 1) {
        // The others may have lost one another first.
        RETURN_IF_ERROR(Expect(!status.ok(), "an error"));
      }
    }
    RETURN_IF_ERROR(Expect(absl::Now() - start < absl::Seconds(2), "returned within two seconds"));
    RETURN_IF_ERROR(Expect(!c.Barrier()->Wait().ok(), "no operation after an abort"));
    return rank.store->Put(absl::StrCat("out/", c.rank()), "");
  });
}

Backend MakeBackend(const std::string& name, std::vector<uint32_t> ranks_on_node) {
  Backend backend;
  backend.name = name;
  backend.ranks_on_node = std::move(ranks_on_node);
  return backend;
}

std::vector<Backend> AllBackends() {
  if (const uint32_t size = MpirunVariable("OMPI_COMM_WORLD_SIZE"); size > 0) {
    return {MakeBackend("mpi", {size})};
  }
  std::vector<Backend> backends;
  for (uint32_t size = 1; size <= 4; ++size) {
    backends.push_back(MakeBackend("loopback", {size}));
    backends.push_back(MakeBackend("shm", {size}));
    backends.push_back(MakeBackend("gloo", {size}));
    backends.push_back(MakeBackend("nccl", {size}));
  }
  backends.push_back(MakeBackend("nccl_on_gpu", {1}));
  backends.push_back(MakeBackend("nccl_on_gpu", {2}));
  backends.push_back(MakeBackend("nccl_levels", {2}));
  backends.push_back(MakeBackend("nccl_levels", {2, 2}));
  backends.push_back(MakeBackend("nccl_levels", {3, 3}));
  // Larger than groups that connect all pairs at start.
  backends.push_back(MakeBackend("gloo", {9}));
  backends.push_back(MakeBackend("hierarchical", {2, 2}));
  backends.push_back(MakeBackend("hierarchical", {2, 1}));
  backends.push_back(MakeBackend("hierarchical", {1, 3, 2}));
  backends.push_back(MakeBackend("hierarchical", {3, 3}));
  return backends;
}

std::string NameOf(const ::testing::TestParamInfo<Backend>& info) {
  std::string name = info.param.name;
  for (const uint32_t ranks : info.param.ranks_on_node) absl::StrAppend(&name, "_", ranks);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Backends, ContractTest, ::testing::ValuesIn(AllBackends()), NameOf);

}  // namespace
}  // namespace muster::collectives
