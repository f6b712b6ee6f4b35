#include "trainer/rank/world_communicator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::rank {
namespace {

v1::World TwoNodes() {
  v1::World world;
  world.set_world_size(3);
  world.add_ranks_on_node(2);
  world.add_ranks_on_node(1);
  world.set_node_address("127.0.0.1");
  *world.mutable_failure_timeout() = ToProto(absl::Seconds(20));
  return world;
}

ConnectOptions OptionsOf(uint32_t rank, const std::string& backend, bool with_node,
                         collectives::KeyStore* store) {
  ConnectOptions options;
  options.rank = rank;
  options.backend = backend;
  options.with_node = with_node;
  options.store = store;
  return options;
}

std::string PlaceIn(const std::unique_ptr<collectives::Communicator>& communicator) {
  if (communicator == nullptr) return "none";
  return absl::StrCat(communicator->rank(), "/", communicator->size());
}

// Each rank's places in the world and on its node, in words.
std::vector<std::string> Connect(bool with_node) {
  collectives::FileKeyStore store;
  return collectives::RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(const RankCommunicators communicators,
                     ConnectRanks(TwoNodes(), OptionsOf(rank, "", with_node, &store)));
    RETURN_IF_ERROR(communicators.world->Barrier()->Wait());
    // A status is all that comes out of a rank's process.
    return absl::UnknownError(
        absl::StrCat(PlaceIn(communicators.world), " ", PlaceIn(communicators.node)));
  });
}

TEST(WorldCommunicatorTest, TheNodesCommunicatorOnlyWhenAskedFor) {
  EXPECT_THAT(Connect(false),
              testing::ElementsAre("UNKNOWN: 0/3 none", "UNKNOWN: 1/3 none", "UNKNOWN: 2/3 none"));
  EXPECT_THAT(Connect(true),
              testing::ElementsAre("UNKNOWN: 0/3 0/2", "UNKNOWN: 1/3 1/2", "UNKNOWN: 2/3 0/1"));
}

TEST(WorldCommunicatorTest, ABackendThatDoesNotExist) {
  collectives::FileKeyStore store;
  const auto communicators =
      ConnectRanks(TwoNodes(), OptionsOf(0, "pigeon", /*with_node=*/true, &store));
  EXPECT_TRUE(absl::IsInvalidArgument(communicators.status())) << communicators.status();
}

TEST(WorldCommunicatorTest, GpusAreAGroupOfTheirOwn) {
  const collectives::FakeNcclRules rules;
  collectives::FileKeyStore store;
  const auto results = collectives::RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    const collectives::NcclParts parts = collectives::FakeNcclParts();
    ConnectOptions options = OptionsOf(rank, "nccl", /*with_node=*/false, &store);
    options.nccl = &parts;
    ASSIGN_OR_RETURN(const RankCommunicators communicators, ConnectRanks(TwoNodes(), options));
    RETURN_IF_ERROR(communicators.devices->Barrier()->Wait());
    return absl::UnknownError(absl::StrCat(communicators.world->backend(), " ",
                                           communicators.devices->backend(), " ",
                                           PlaceIn(communicators.devices)));
  });
  EXPECT_THAT(results, testing::ElementsAre("UNKNOWN: hierarchical nccl 0/3",
                                            "UNKNOWN: hierarchical nccl 1/3",
                                            "UNKNOWN: hierarchical nccl 2/3"));
}

}  // namespace
}  // namespace muster::rank
