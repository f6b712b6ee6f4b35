#include "collectives/factory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

WorldOptions Options(const std::string& backend, uint32_t rank, uint32_t world_size,
                     std::vector<uint32_t> ranks_on_node, KeyStore* store) {
  WorldOptions options;
  options.backend = backend;
  options.rank = rank;
  options.world_size = world_size;
  options.ranks_on_node = std::move(ranks_on_node);
  options.store = store;
  options.interface_address = "127.0.0.1";
  return options;
}

enum class Device { kCpu, kGpu };

// Returns the backend that every rank of a world uses.
std::string BackendOf(const std::string& backend, uint32_t world_size,
                      const std::vector<uint32_t>& ranks_on_node, Device device = Device::kCpu,
                      const std::string& hierarchical = "auto") {
  FileKeyStore store;
  std::string found;
  const auto results = RunRankProcesses(world_size, [&](uint32_t rank) -> absl::Status {
    WorldOptions options = Options(backend, rank, world_size, ranks_on_node, &store);
    options.hierarchical = hierarchical;
    NcclParts nccl;
    if (device == Device::kGpu) {
      nccl = FakeNcclParts();
      options.nccl = &nccl;
    }
    ASSIGN_OR_RETURN(auto communicator, CreateWorldCommunicator(options));
    RETURN_IF_ERROR(communicator->Barrier()->Wait());
    // A status is the only result that a rank's process returns.
    return absl::UnknownError(absl::StrCat(communicator->backend(), " ", communicator->rank(), "/",
                                           communicator->size()));
  });
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const std::string place = absl::StrCat(" ", rank, "/", world_size);
    const std::string prefix = "UNKNOWN: ";
    if (results[rank].size() < prefix.size() + place.size()) return results[rank];
    const std::string name =
        results[rank].substr(prefix.size(), results[rank].size() - prefix.size() - place.size());
    if (results[rank] != prefix + name + place) return results[rank];
    if (rank > 0 && name != found) return "differs between ranks";
    found = name;
  }
  return found;
}

TEST(FactoryTest, AutoSelectsBackendByNodes) {
  EXPECT_EQ(BackendOf("auto", 1, {1}), "single");
  EXPECT_EQ(BackendOf("auto", 2, {2}), "shm");
  EXPECT_EQ(BackendOf("auto", 2, {1, 1}), "gloo");
  EXPECT_EQ(BackendOf("auto", 4, {2, 2}), "hierarchical");
  EXPECT_EQ(BackendOf("auto", 3, {2, 1}), "hierarchical");
}

TEST(FactoryTest, ExpandsSingleRanksOnNodeEntry) {
  EXPECT_EQ(BackendOf("auto", 2, {1}), "gloo");
  EXPECT_EQ(BackendOf("auto", 4, {2}), "hierarchical");
}

TEST(FactoryTest, UsesNamedBackend) {
  EXPECT_EQ(BackendOf("gloo", 2, {2}), "gloo");
  EXPECT_EQ(BackendOf("hierarchical", 2, {2}), "shm");
  EXPECT_EQ(BackendOf("hierarchical", 2, {1, 1}), "gloo");
  EXPECT_EQ(BackendOf("mpi", 2, {2}),
            "FAILED_PRECONDITION: backend mpi: this program is not linked with MPI; add "
            "//collectives/mpi to its deps");
}

TEST(FactoryTest, SelectsNcclForGpus) {
  EXPECT_EQ(BackendOf("auto", 1, {1}, Device::kGpu), "nccl");
  EXPECT_EQ(BackendOf("auto", 4, {2, 2}, Device::kGpu), "nccl");
  EXPECT_EQ(BackendOf("nccl", 3, {2, 1}, Device::kGpu), "nccl");
}

TEST(FactoryTest, FollowsHierarchicalOption) {
  EXPECT_EQ(BackendOf("auto", 4, {2, 2}, Device::kCpu, "on"), "hierarchical");
  EXPECT_EQ(BackendOf("auto", 4, {2, 2}, Device::kCpu, "off"), "gloo");
  EXPECT_EQ(BackendOf("auto", 2, {2}, Device::kCpu, "off"), "shm");
  EXPECT_EQ(BackendOf("auto", 4, {2, 2}, Device::kGpu, "on"), "nccl");
  EXPECT_EQ(BackendOf("auto", 2, {2}, Device::kGpu, "on"), "nccl");
  const std::string refused = BackendOf("nccl", 3, {2, 1}, Device::kGpu, "on");
  EXPECT_EQ(refused,
            "INVALID_ARGUMENT: hierarchical: on requires the same number of ranks on every node");
  EXPECT_EQ(BackendOf("auto", 1, {1}, Device::kCpu, "perhaps"),
            "INVALID_ARGUMENT: hierarchical: unknown value 'perhaps'; must be auto, on or off");
}

TEST(FactoryTest, NcclRequiresGpu) {
  FileKeyStore store;
  const auto communicator = CreateWorldCommunicator(Options("nccl", 0, 1, {1}, &store));
  EXPECT_EQ(communicator.status().message(),
            "WORLD: backend nccl connects GPUs, and this rank has none");
}

TEST(FactoryTest, RejectsInvalidWorlds) {
  FileKeyStore store;
  const std::vector<WorldOptions> bad = {
      Options("nccl", 0, 2, {2}, &store),      Options("shm", 0, 2, {1, 1}, &store),
      Options("auto", 2, 2, {2}, &store),      Options("auto", 0, 3, {1, 1}, &store),
      Options("auto", 0, 3, {2}, &store),      Options("auto", 0, 2, {2, 0}, &store),
      Options("auto", 0, 0, {}, &store),       Options("auto", 0, 2, {2}, nullptr),
      Options("auto", 0, 1 << 30, {1}, &store)};
  for (const WorldOptions& options : bad) {
    const auto communicator = CreateWorldCommunicator(options);
    EXPECT_TRUE(absl::IsInvalidArgument(communicator.status()))
        << options.backend << " " << options.world_size << ": " << communicator.status();
  }
}

TEST(FactoryTest, GroupsHaveDistinctIds) {
  FileKeyStore store;
  const auto results = RunRankProcesses(4, [&](uint32_t rank) -> absl::Status {
    const WorldOptions options = Options("auto", rank, 4, {2, 2}, &store);
    ASSIGN_OR_RETURN(const auto world, CreateWorldCommunicator(options));
    ASSIGN_OR_RETURN(const auto node, CreateNodeCommunicator(options));
    return world->Barrier()->Wait();
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
  std::vector<std::string> ids;
  for (const std::string key :
       {"WORLD/0", "LOCAL/0", "LOCAL/1", "CROSS/0", "CROSS/1", "NODE/0", "NODE/1"}) {
    const auto id = store.Get("unique-id/" + key, absl::ZeroDuration());
    ASSERT_TRUE(id.ok()) << key;
    EXPECT_EQ(id->size(), 32u);
    for (const std::string& other : ids) EXPECT_NE(*id, other);
    ids.push_back(*id);
  }
}

absl::StatusOr<float> SumOverRanks(Communicator& communicator, float value) {
  RETURN_IF_ERROR(
      communicator.AllReduce(&value, &value, 1, DataType::kFloat32, ReduceOp::kSum)->Wait());
  return value;
}

// Uses both groups of one generation at the same time, with different world backends.
TEST(FactoryTest, NodeGroupCoexistsWithWorld) {
  const std::vector<uint32_t> node_of = {0, 0, 0, 1, 1};
  for (const std::string backend : {"auto", "gloo", "nccl"}) {
    FileKeyStore store;
    const auto results = RunRankProcesses(5, [&](uint32_t rank) -> absl::Status {
      WorldOptions options = Options(backend, rank, 5, {3, 2}, &store);
      NcclParts nccl;
      if (backend == "nccl") {
        nccl = FakeNcclParts();
        options.nccl = &nccl;
      }
      ASSIGN_OR_RETURN(auto world, CreateWorldCommunicator(options));
      ASSIGN_OR_RETURN(auto node, CreateNodeCommunicator(options));
      const uint32_t first = node_of[rank] == 0 ? 0 : 3;
      const std::string place = absl::StrCat(node->backend(), " ", node->rank(), "/", node->size());
      const std::string expected = absl::StrCat(backend == "auto" ? "shm" : backend, " ",
                                                rank - first, "/", node_of[rank] == 0 ? 3 : 2);
      if (place != expected) return absl::InternalError(place);
      for (int round = 0; round < 3; ++round) {
        ASSIGN_OR_RETURN(const float all, SumOverRanks(*world, static_cast<float>(rank)));
        ASSIGN_OR_RETURN(const float near, SumOverRanks(*node, static_cast<float>(rank)));
        if (all != 10 || near != (node_of[rank] == 0 ? 3 : 7)) {
          return absl::InternalError(absl::StrCat("sums ", all, " and ", near));
        }
      }
      return world->Barrier()->Wait();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << backend;
  }
}

// Two pipelines of three stages on nodes of three ranks: PIPE and STAGE groups at the same time,
// each with the backend that fits its ranks, in the caller's order.
TEST(FactoryTest, CreatesGroupsOfArbitraryRanks) {
  for (const std::string backend : {"auto", "gloo", "nccl"}) {
    FileKeyStore store;
    const auto results = RunRankProcesses(6, [&](uint32_t rank) -> absl::Status {
      WorldOptions options = Options(backend, rank, 6, {3, 3}, &store);
      NcclParts nccl;
      if (backend == "nccl") {
        nccl = FakeNcclParts();
        options.nccl = &nccl;
      }
      const uint32_t pipe = rank / 3;
      const uint32_t stage = rank % 3;
      ASSIGN_OR_RETURN(
          auto pipe_group,
          CreateGroupCommunicator(options, "PIPE", pipe, {3 * pipe + 2, 3 * pipe, 3 * pipe + 1}));
      ASSIGN_OR_RETURN(auto stage_group,
                       CreateGroupCommunicator(options, "STAGE", stage, {stage, 3 + stage}));
      const std::string place = absl::StrCat(pipe_group->backend(), " ", pipe_group->rank(), ", ",
                                             stage_group->backend(), " ", stage_group->rank());
      const std::string expected =
          absl::StrCat(backend == "auto" ? "shm" : backend, " ", (stage + 1) % 3, ", ",
                       backend == "auto" ? "gloo" : backend, " ", pipe);
      if (place != expected) return absl::InternalError(place);
      ASSIGN_OR_RETURN(const float in_pipe, SumOverRanks(*pipe_group, static_cast<float>(rank)));
      ASSIGN_OR_RETURN(const float of_stage, SumOverRanks(*stage_group, static_cast<float>(rank)));
      if (in_pipe != 9.0f * pipe + 3 || of_stage != 2.0f * stage + 3) {
        return absl::InternalError(absl::StrCat("sums ", in_pipe, " and ", of_stage));
      }
      return absl::OkStatus();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << backend;
  }
}

TEST(FactoryTest, RejectsInvalidGroups) {
  FileKeyStore store;
  const auto status = [&store](const std::string& backend, const std::string& name,
                               std::vector<uint32_t> members) {
    return CreateGroupCommunicator(Options(backend, 1, 4, {2, 2}, &store), name, 0,
                                   std::move(members))
        .status();
  };
  EXPECT_EQ(status("auto", "PIPE", {0, 2}).message(),
            "PIPE: rank 1 of 4 is not among the ranks 0, 2");
  EXPECT_TRUE(absl::IsInvalidArgument(status("auto", "PIPE", {})));
  EXPECT_TRUE(absl::IsInvalidArgument(status("auto", "PIPE", {1, 4})));
  EXPECT_TRUE(absl::IsInvalidArgument(status("auto", "PIPE", {1, 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(status("auto", "LOCAL", {0, 1})));
  EXPECT_TRUE(absl::IsInvalidArgument(status("shm", "PIPE", {1, 2})));
}

TEST(FactoryTest, CreatesNodeGroupOfOneRank) {
  FileKeyStore store;
  const auto results = RunRankProcesses(2, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto node, CreateNodeCommunicator(Options("auto", rank, 2, {1, 1}, &store)));
    ASSIGN_OR_RETURN(const float sum, SumOverRanks(*node, static_cast<float>(rank)));
    const bool right = node->size() == 1 && sum == static_cast<float>(rank);
    return right ? absl::OkStatus() : absl::InternalError(absl::StrCat(node->size(), " ", sum));
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace muster::collectives
