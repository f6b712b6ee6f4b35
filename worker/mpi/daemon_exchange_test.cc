#include "worker/mpi/daemon_exchange.h"

#include <map>
#include <string>

#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/mpi/open_mpi.h"
#include "worker/shim/fields.h"

namespace muster::mpi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class DaemonExchangeTest : public ::testing::Test {
 protected:
  FirstRank Node(uint32_t node_rank, uint32_t ranks) const {
    FirstRank rank;
    rank.node_rank = node_rank;
    rank.node_count = 3;
    rank.ranks_of_node = ranks;
    rank.world_size = 5;
    rank.directory = ::testing::TempDir();
    return rank;
  }

  std::map<std::string, std::string> stored_;
  const KeyFunctions keys_ = {
      .put =
          [this](const std::string& key, const std::string& value) {
            stored_[key] = value;
            return absl::OkStatus();
          },
      .get = [this](const std::string& key) -> absl::StatusOr<std::string> {
        const auto it = stored_.find(key);
        if (it == stored_.end()) return absl::AbortedError("no key " + key);
        return it->second;
      },
  };
};

TEST_F(DaemonExchangeTest, MpirunStartsOnceAllNodesAreReady) {
  stored_ = {{"mpi/ranks/1", "2"}};
  EXPECT_TRUE(absl::IsAborted(AwaitDaemon(Node(0, 2), keys_).status()));
  stored_["mpi/ranks/2"] = "1";
  const auto daemon = AwaitDaemon(Node(0, 2), keys_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_TRUE(daemon->is_mpirun);
  const std::string hosts = ::testing::TempDir() + "/hosts";
  EXPECT_EQ(daemon->command, MpirunCommand(hosts, 5));
  EXPECT_EQ(shim::ReadFile(hosts), "localhost slots=2\nnode-rank-1 slots=2\nnode-rank-2 slots=1\n");
}

TEST_F(DaemonExchangeTest, OtherNodesRunWhatMpirunSends) {
  // As mpirun calls it; the remote shell removes the quotes.
  EXPECT_TRUE(SendDaemonCommand("node-rank-2", {" orted", "-mca", "ess", "\"env\""}, keys_).ok());
  EXPECT_THAT(stored_, ElementsAre(Pair("mpi/daemon/2", " orted -mca ess \"env\"")));
  const auto daemon = AwaitDaemon(Node(2, 1), keys_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_FALSE(daemon->is_mpirun);
  EXPECT_THAT(daemon->command, ElementsAre("/bin/sh", "-c", " orted -mca ess \"env\""));
  EXPECT_EQ(stored_["mpi/ranks/2"], "1");
}

TEST_F(DaemonExchangeTest, RejectsDamagedKeysAndOtherHosts) {
  stored_ = {{"mpi/ranks/1", "two"}};
  EXPECT_THAT(std::string(AwaitDaemon(Node(0, 2), keys_).status().message()),
              HasSubstr("key mpi/ranks/1 is 'two'"));
  EXPECT_TRUE(absl::IsInvalidArgument(SendDaemonCommand("gpu07", {"orted"}, keys_)));
}

TEST_F(DaemonExchangeTest, ReportsACommandThatIsTooLong) {
  const std::string text(limits::kValueBytes, 'x');
  const absl::Status status = SendDaemonCommand("node-rank-1", {"orted", text}, keys_);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit is 65536"));
}

}  // namespace
}  // namespace muster::mpi
