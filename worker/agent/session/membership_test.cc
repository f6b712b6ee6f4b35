#include "worker/agent/session/membership.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Welcome WelcomeOf(const std::string& cluster_id, uint64_t commit_index) {
  v1::Welcome welcome;
  welcome.set_cluster_id(cluster_id);
  welcome.set_commit_index(commit_index);
  return welcome;
}

// The Welcome of a coordinator of term 3.
v1::Welcome StartOf(const std::string& start) {
  v1::Welcome welcome = WelcomeOf("a", 20);
  welcome.set_coordinator_start(start);
  welcome.set_term(3);
  return welcome;
}

class ClusterIdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "identity.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/cluster.pb"; }

  std::string directory_;
  const SteadyTime start_ = SteadyTime(absl::Hours(1));
};

TEST_F(ClusterIdentityTest, NewWorkerObeysAnyCoordinator) {
  const ClusterIdentity identity(path());
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("a", 0)), IsEmpty());
  EXPECT_THAT(identity.ConflictWith(v1::Welcome()), IsEmpty());
}

TEST_F(ClusterIdentityTest, RecognizesOtherClustersAndOlderStores) {
  ClusterIdentity identity(path());
  ASSERT_TRUE(identity.Join(StartOf("s1")).ok());
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("a", 20)), IsEmpty());
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("a", 21)), IsEmpty());
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("a", 19)), HasSubstr("it has seen commit 20"));
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("b", 30)),
              HasSubstr("belong to cluster a, but the coordinator's is b"));
  EXPECT_THAT(identity.ConflictWith(v1::Welcome()), HasSubstr("the coordinator's is unknown"));
}

TEST_F(ClusterIdentityTest, SurvivesTheWorker) {
  {
    ClusterIdentity identity(path());
    ASSERT_TRUE(identity.Join(StartOf("s1")).ok());
  }
  const ClusterIdentity next(path());
  EXPECT_EQ(next.cluster_id(), "a");
  EXPECT_EQ(next.commit_index(), 20u);
  EXPECT_EQ(next.coordinator_start(), "s1");
}

TEST_F(ClusterIdentityTest, ReadsFileOfEarlierBuild) {
  v1::JoinCluster stored;
  stored.set_cluster_id("a");
  stored.set_commit_index(20);
  std::ofstream(path()) << stored.SerializeAsString();
  const ClusterIdentity identity(path());
  EXPECT_EQ(identity.cluster_id(), "a");
  EXPECT_EQ(identity.commit_index(), 20u);
  EXPECT_THAT(identity.coordinator_start(), IsEmpty());
}

TEST_F(ClusterIdentityTest, StoresRisingIndexNowAndThen) {
  ClusterIdentity identity(path());
  ASSERT_TRUE(identity.Join(StartOf("s1")).ok());
  EXPECT_TRUE(identity.Raise(21, start_));
  ASSERT_TRUE(identity.Store(start_).ok());
  EXPECT_FALSE(identity.Raise(22, start_ + ClusterIdentity::kStoreInterval / 2));
  EXPECT_FALSE(identity.Raise(21, start_ + absl::Hours(1))) << "an index never falls";
  EXPECT_EQ(identity.commit_index(), 22u);
  EXPECT_EQ(ClusterIdentity(path()).commit_index(), 21u);
  EXPECT_TRUE(identity.Raise(23, start_ + ClusterIdentity::kStoreInterval));
  ASSERT_TRUE(identity.Store(start_).ok());
  EXPECT_EQ(ClusterIdentity(path()).commit_index(), 23u);
}

TEST_F(ClusterIdentityTest, ForgottenIdentityIsNotStoredAgain) {
  ClusterIdentity identity(path());
  ASSERT_TRUE(identity.Join(StartOf("s1")).ok());
  identity.Forget();
  EXPECT_FALSE(identity.Raise(50, start_));
  EXPECT_THAT(identity.ConflictWith(WelcomeOf("b", 1)), IsEmpty());
}

TEST_F(ClusterIdentityTest, DamagedFileIsLikeNone) {
  std::ofstream(path()) << "\xff\xff";
  EXPECT_THAT(ClusterIdentity(path()).cluster_id(), IsEmpty());
}

TEST_F(ClusterIdentityTest, RecognizesEarlierTerm) {
  ClusterIdentity identity(path());
  ASSERT_TRUE(identity.Join(StartOf("s1")).ok());
  v1::Welcome earlier = WelcomeOf("a", 30);
  earlier.set_term(2);
  EXPECT_THAT(identity.ConflictWith(earlier), HasSubstr("term 3"));
  earlier.set_term(3);
  EXPECT_THAT(identity.ConflictWith(earlier), IsEmpty());
}

}  // namespace
}  // namespace muster::agent
