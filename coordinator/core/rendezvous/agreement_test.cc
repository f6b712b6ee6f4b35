#include "coordinator/core/rendezvous/agreement.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

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
  EXPECT_EQ(Describe(*agreement, kJob), "rank 1 reads the checkpoint of step 9");
}

TEST(AgreementTest, PrefersNewerStateInMemory) {
  v1::JoinInfo in_memory = Join("x", 9);
  in_memory.set_checkpoint_in_memory(true);
  const auto newer = Agree({Join("x", 8), in_memory, in_memory}, kJob);
  EXPECT_EQ(newer->resume_rank, 1u);
  EXPECT_TRUE(newer->resume_in_memory);
  EXPECT_EQ(Describe(*newer, kJob), "rank 1 has the state of step 9 in memory");
  const auto older = Agree({in_memory, Join("x", 10)}, kJob);
  EXPECT_EQ(older->resume_rank, 1u);
  EXPECT_FALSE(older->resume_in_memory);
}

TEST(AgreementTest, PrefersTheJobsOwnCheckpoints) {
  const auto own = Agree({Join("x", 90, "other"), Join("x", 20), Join("x", 95, "other")}, kJob);
  EXPECT_EQ(own->resume_rank, 1u);
  EXPECT_EQ(own->resume_step, 20u);
  EXPECT_EQ(own->resume_job_id, kJob);
  const auto other = Agree({Join("x", 90, "other"), Join("x"), Join("x", 95, "other")}, kJob);
  EXPECT_EQ(other->resume_rank, 2u);
  EXPECT_EQ(other->resume_job_id, "other");
  EXPECT_EQ(Describe(*other, kJob), "rank 2 reads the checkpoint of step 95 of job other, /other");
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
}

}  // namespace
}  // namespace muster::core
