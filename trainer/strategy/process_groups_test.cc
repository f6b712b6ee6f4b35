#include "trainer/strategy/process_groups.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

// Two ranks on one node and one on another.
collectives::WorldOptions TwoNodes(uint32_t rank, collectives::KeyStore* store) {
  collectives::WorldOptions options;
  options.rank = rank;
  options.world_size = 3;
  options.ranks_on_node = {2, 1};
  options.interface_address = "127.0.0.1";
  options.store = store;
  options.connect_timeout = options.timeout = absl::Seconds(20);
  return options;
}

std::string PlaceIn(const std::unique_ptr<collectives::Communicator>& communicator) {
  if (communicator == nullptr) return "none";
  return absl::StrCat(communicator->rank(), "/", communicator->size());
}

// Each rank's "rank/size" in the world and on its node.
std::vector<std::string> Connect(bool local) {
  collectives::FileKeyStore store;
  return collectives::RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(const ProcessGroups groups,
                     ProcessGroups::Create(TwoNodes(rank, &store), {.local = local}));
    RETURN_IF_ERROR(groups.world->Barrier()->Wait());
    // A rank's process can return only a status.
    return absl::UnknownError(
        absl::StrCat(PlaceIn(groups.world), " ", PlaceIn(groups.local_group)));
  });
}

TEST(ProcessGroupsTest, CreatesLocalGroupOnlyWhenRequired) {
  EXPECT_THAT(Connect(false),
              testing::ElementsAre("UNKNOWN: 0/3 none", "UNKNOWN: 1/3 none", "UNKNOWN: 2/3 none"));
  EXPECT_THAT(Connect(true),
              testing::ElementsAre("UNKNOWN: 0/3 0/2", "UNKNOWN: 1/3 1/2", "UNKNOWN: 2/3 0/1"));
}

TEST(ProcessGroupsTest, RejectsUnknownBackend) {
  collectives::FileKeyStore store;
  collectives::WorldOptions options = TwoNodes(0, &store);
  options.backend = "pigeon";
  const auto groups = ProcessGroups::Create(options, {.local = true});
  EXPECT_TRUE(absl::IsInvalidArgument(groups.status())) << groups.status();
}

TEST(ProcessGroupsTest, CreatesDeviceGroupForNccl) {
  const collectives::FakeNcclRules rules;
  collectives::FileKeyStore store;
  const auto results = collectives::RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    const collectives::NcclParts parts = collectives::FakeNcclParts();
    collectives::WorldOptions options = TwoNodes(rank, &store);
    options.backend = "nccl";
    options.nccl = &parts;
    ASSIGN_OR_RETURN(const ProcessGroups groups, ProcessGroups::Create(options, {}));
    RETURN_IF_ERROR(groups.devices->Barrier()->Wait());
    return absl::UnknownError(absl::StrCat(groups.world->backend(), " ", groups.devices->backend(),
                                           " ", PlaceIn(groups.devices)));
  });
  EXPECT_THAT(results, testing::ElementsAre("UNKNOWN: hierarchical nccl 0/3",
                                            "UNKNOWN: hierarchical nccl 1/3",
                                            "UNKNOWN: hierarchical nccl 2/3"));
}

TEST(ProcessGroupsTest, CreatesPipelineAndDataParallelGroups) {
  collectives::FileKeyStore store;
  const auto results = collectives::RunRankProcesses(4, [&](uint32_t rank) -> absl::Status {
    collectives::WorldOptions options;
    options.rank = rank;
    options.world_size = 4;
    options.ranks_on_node = {4};
    options.store = &store;
    ASSIGN_OR_RETURN(const ProcessGroups groups,
                     ProcessGroups::Create(options, {.devices = false, .pipeline_stages = 2}));
    RETURN_IF_ERROR(groups.status());
    return absl::UnknownError(
        absl::StrCat(PlaceIn(groups.pipeline_group), " ", PlaceIn(groups.data_parallel_group), " ",
                     PlaceIn(groups.activations_in), " ", PlaceIn(groups.activations_out), " of ",
                     groups.all().size()));
  });
  EXPECT_THAT(results, testing::ElementsAre(
                           "UNKNOWN: 0/2 0/2 none 0/2 of 5", "UNKNOWN: 1/2 0/2 1/2 none of 5",
                           "UNKNOWN: 0/2 1/2 none 0/2 of 5", "UNKNOWN: 1/2 1/2 1/2 none of 5"));
}

TEST(PipelinePlaceTest, NumbersRanksPipelineByPipeline) {
  const absl::StatusOr<PipelinePlace> place = PipelinePlaceOf(5, 8, 4);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->stage, 1u);
  EXPECT_EQ(place->replica, 1u);
  EXPECT_EQ(place->replicas, 2u);
  EXPECT_FALSE(PipelinePlaceOf(0, 8, 3).ok());
  EXPECT_FALSE(PipelinePlaceOf(8, 8, 4).ok());
}

}  // namespace
}  // namespace muster::train
