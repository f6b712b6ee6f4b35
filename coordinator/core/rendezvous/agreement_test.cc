#include "coordinator/core/rendezvous/agreement.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

constexpr char kJob[] = "job-1";

v1::JoinInfo Join(const std::string& layout, std::optional<uint64_t> checkpoint = std::nullopt,
                  const std::string& writer = kJob) {
  v1::JoinInfo join;
  join.set_layout_digest(layout);
  if (checkpoint.has_value()) {
    join.set_has_checkpoint(true);
    join.set_checkpoint_step(*checkpoint);
    join.set_checkpoint_path("/" + writer);
    join.set_checkpoint_job_id(writer);
  }
  return join;
}

v1::JoinInfo OnDisk(uint64_t generation, uint64_t step) {
  v1::JoinInfo join = Join("x", step);
  join.set_checkpoint_generation(generation);
  return join;
}

struct State {
  uint64_t generation = 1;
  uint64_t step = 0;
  uint32_t part = 0;
  uint32_t parts = 1;
};

v1::JoinInfo WithState(v1::JoinInfo join, const State& state) {
  v1::MemoryState& added = *join.add_memory();
  added.set_generation(state.generation);
  added.set_step(state.step);
  added.set_part(state.part);
  added.set_parts(state.parts);
  return join;
}

v1::JoinInfo WithEntry(const std::string& name, const std::string& value) {
  v1::JoinInfo join;
  v1::FingerprintEntry& entry = *join.add_fingerprint();
  entry.set_name(name);
  entry.set_value(value);
  return join;
}

TEST(AgreementTest, ReturnsNulloptUntilAllRanksHaveJoined) {
  EXPECT_FALSE(Agree({Join("x"), std::nullopt}, kJob).has_value());
  EXPECT_TRUE(Agree({Join("x"), Join("x")}, kJob).has_value());
}

TEST(AgreementTest, LowestRankWithNewestCheckpointReadsIt) {
  const auto agreement = Agree({Join("x", 5), Join("x", 9), Join("x"), Join("x", 9)}, kJob);
  ASSERT_TRUE(agreement.has_value());
  EXPECT_EQ(agreement->resume_rank, 1u);
  EXPECT_EQ(agreement->resume_step, 9u);
  EXPECT_EQ(Describe(*agreement, kJob, 0), "rank 1 reads the checkpoint of step 9");
}

TEST(AgreementTest, PrefersNewerStateInMemory) {
  const v1::JoinInfo in_memory = WithState(Join("x"), {.step = 9});
  const auto newer = Agree({Join("x", 8), in_memory, in_memory}, kJob);
  EXPECT_EQ(newer->resume_rank, 1u);
  EXPECT_EQ(newer->resume_generation, 1u);
  EXPECT_THAT(newer->memory_ranks, ElementsAre(1u));
  EXPECT_EQ(Describe(*newer, kJob, 9), "rank 1 has the state of step 9 in memory");
  const auto older = Agree({in_memory, OnDisk(1, 10)}, kJob);
  EXPECT_EQ(older->resume_rank, 1u);
  EXPECT_TRUE(older->memory_ranks.empty());
}

// Rows: what each rank's node has in memory, and the step and the ranks of the decision; without
// ranks it is the checkpoint on disk.
TEST(AgreementTest, DecidesForAllRanksTogether) {
  struct Row {
    std::string what;
    std::vector<std::vector<State>> memory;  // by rank; rank 0 also has the checkpoint of step 5
    uint64_t step;
    std::vector<uint32_t> ranks;
    std::string lost;  // end of the description
  };
  const State whole9{.step = 9}, whole10{.step = 10};
  const State first9{.step = 9, .part = 0, .parts = 2}, second9{.step = 9, .part = 1, .parts = 2};
  const State first10{.step = 10, .part = 0, .parts = 2};
  const State second10{.step = 10, .part = 1, .parts = 2};
  const State old12{.generation = 0, .step = 12};
  const std::vector<Row> rows = {
      {"nothing in memory", {{}, {}, {}}, 5, {}, "because no node has a newer state in memory"},
      {"the newest of two steps", {{}, {whole9}, {whole10}}, 10, {2}, ""},
      {"as new as the one on disk", {{}, {{.step = 5}}, {}}, 5, {1}, "5 steps are lost"},
      {"an older generation", {{old12}, {}, {}}, 5, {}, "no node has a newer state in memory"},
      {"all parts", {{second9}, {first9}, {first9}}, 9, {1, 0}, "1 step is lost"},
      {"all parts on one node", {{first9, second9}, {}, {}}, 9, {0, 0}, "1 step is lost"},
      {"a part is lost",
       {{first9}, {first9}, {}},
       5,
       {},
       "5 steps are lost, because no node has part 2 of 2 of the state of step 9 in memory"},
      {"parts of different steps",
       {{first9}, {second10}, {}},
       5,
       {},
       "5 steps are lost, because no node has part 1 of 2 of the state of step 10 in memory"},
      {"a complete step before an incomplete one",
       {{first9, first10}, {second9}, {}},
       9,
       {0, 1},
       "1 step is lost, because no node has part 2 of 2 of the state of step 10 in memory"},
      {"a whole state beside parts",
       {{first10}, {whole9}, {}},
       9,
       {1},
       "1 step is lost, because no node has part 2 of 2 of the state of step 10 in memory"},
      {"parts out of bounds",
       {{{.step = 9, .part = 2, .parts = 2}}, {}, {}},
       5,
       {},
       "no node has a newer state in memory"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    Joins joins;
    for (const std::vector<State>& states : row.memory) {
      v1::JoinInfo join = joins.empty() ? OnDisk(1, 5) : Join("x");
      for (const State& state : states) join = WithState(std::move(join), state);
      joins.push_back(std::move(join));
    }
    const auto agreement = Agree(joins, kJob);
    EXPECT_EQ(agreement->resume_step, row.step);
    EXPECT_EQ(agreement->memory_ranks, row.ranks);
    EXPECT_EQ(agreement->resume_rank, row.ranks.empty() ? 0 : row.ranks.front());
    EXPECT_THAT(Describe(*agreement, kJob, /*reached=*/10), EndsWith(row.lost));
  }
}

TEST(AgreementTest, UsesMemoryWithoutACheckpoint) {
  const State first{.step = 9, .part = 0, .parts = 2}, second{.step = 9, .part = 1, .parts = 2};
  const auto complete = Agree({WithState(Join("x"), first), WithState(Join("x"), second)}, kJob);
  EXPECT_THAT(complete->memory_ranks, ElementsAre(0u, 1u));
  EXPECT_EQ(Describe(*complete, kJob, 9),
            "ranks 0, 1 have the parts of the state of step 9 in memory");
  const auto incomplete = Agree({WithState(Join("x"), first), Join("x")}, kJob);
  EXPECT_FALSE(incomplete->resume_rank.has_value());
  EXPECT_EQ(Describe(*incomplete, kJob, 8),
            "no rank has a checkpoint; 9 steps are lost, because no node has part 2 of 2 of the "
            "state of step 9 in memory");
}

TEST(AgreementTest, PrefersMemoryToTheCheckpointOfAnotherJob) {
  const auto agreement = Agree({Join("x", 90, "other"), WithState(Join("x"), {.step = 3})}, kJob);
  EXPECT_EQ(agreement->resume_step, 3u);
  EXPECT_EQ(agreement->resume_job_id, kJob);
}

TEST(AgreementTest, PrefersTheJobsOwnCheckpoints) {
  const auto own = Agree({Join("x", 90, "other"), Join("x", 20), Join("x", 95, "other")}, kJob);
  EXPECT_EQ(own->resume_rank, 1u);
  EXPECT_EQ(own->resume_step, 20u);
  EXPECT_EQ(own->resume_job_id, kJob);
  const auto other = Agree({Join("x", 90, "other"), Join("x"), Join("x", 95, "other")}, kJob);
  EXPECT_EQ(other->resume_rank, 2u);
  EXPECT_EQ(other->resume_job_id, "other");
  EXPECT_EQ(Describe(*other, kJob, 0),
            "rank 2 reads the checkpoint of step 95 of job other, /other");
}

// A generation may resume from an earlier step than its predecessor reached, for example because
// the checkpoint of that step was on a lost node.
TEST(AgreementTest, PrefersTheHighestGeneration) {
  const auto of_generation = [](uint64_t step, uint64_t generation) {
    v1::JoinInfo join = Join("x", step);
    join.set_checkpoint_generation(generation);
    return join;
  };
  const auto agreement = Agree({of_generation(90, 1), of_generation(40, 3), of_generation(60, 2),
                                of_generation(40, 3), of_generation(30, 3)},
                               kJob);
  EXPECT_EQ(agreement->resume_rank, 1u);
  EXPECT_EQ(agreement->resume_step, 40u);
  EXPECT_EQ(agreement->resume_generation, 3u);
  // Checkpoints of earlier releases have no generation.
  EXPECT_EQ(Agree({Join("x", 90), of_generation(40, 1), Join("x", 95)}, kJob)->resume_rank, 1u);
}

TEST(AgreementTest, HasNoResumeRankWithoutCheckpoint) {
  const auto agreement = Agree({Join("x"), Join("x")}, kJob);
  EXPECT_FALSE(agreement->resume_rank.has_value());
  EXPECT_FALSE(agreement->canonical_layout);
}

TEST(AgreementTest, UsesCanonicalLayoutWhenLayoutsDiffer) {
  EXPECT_TRUE(Agree({Join("x"), Join("y")}, kJob)->canonical_layout);
}

TEST(AgreementTest, MismatchShowsDifferingEntriesOfBothRanks) {
  v1::GenerationRecord record;
  record.set_world_size(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    v1::NodePlacement& node = *record.add_nodes();
    node.set_node(std::string(1, static_cast<char>('a' + rank)));
    node.add_ranks()->set_rank(rank);
  }
  const GenerationState generation(record, SteadyTime());
  const v1::JoinInfo usual = WithEntry("torch", "2.1");
  EXPECT_FALSE(FindMismatch({usual, usual, usual}, generation).has_value());
  const auto mismatch = FindMismatch({usual, usual, WithEntry("torch", "2.2")}, generation);
  ASSERT_TRUE(mismatch.has_value());
  EXPECT_EQ(mismatch->rank, 2u);
  EXPECT_EQ(mismatch->message, "node a (rank 0): torch 2.1\nnode c (rank 2): torch 2.2");
  EXPECT_EQ(FindMismatch({usual, v1::JoinInfo(), usual}, generation)->message,
            "node a (rank 0): torch 2.1\nnode b (rank 1): no torch");
  v1::JoinInfo twice = WithEntry("torch", "2.1");
  *twice.add_fingerprint() = WithEntry("torch", "2.2").fingerprint(0);
  EXPECT_FALSE(FindMismatch({twice}, generation).has_value());
}

}  // namespace
}  // namespace muster::core
