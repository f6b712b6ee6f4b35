// Tests of jobs with secrets: their ranks get them, and the worker stores them nowhere.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;
using Stream = ScriptedCoordinator::Stream;

constexpr char kValue[] = "hunter2-0123456789";
// Prints the digest of the secret, so that no log contains the value.
constexpr char kPrintDigest[] = "printf %s \"$TOKEN\" | sha256sum";

class SecretJobsTest : public AgentTest {
 protected:
  v1::CoordinatorMessage LaunchWithSecret(const std::string& script, bool sent = true) {
    v1::CoordinatorMessage message = Launch(script);
    v1::Launch& launch = *message.mutable_launch();
    launch.set_owner("alice");
    (*launch.mutable_spec()->mutable_secret_env())["TOKEN"] = "hf-token";
    if (sent) (*launch.mutable_secrets())["hf-token"] = kValue;
    return message;
  }
  std::string LogOf(const std::string& stream) const {
    return Read(Path("data/jobs/job-1/logs/generation-1/rank-0000." + stream));
  }
  // The files in the worker's data directory that contain the value.
  std::vector<std::string> FilesWithValue() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path("data"))) {
      if (!entry.is_regular_file()) continue;
      const std::string text = Read(entry.path().string());
      if (text.find(kValue) != std::string::npos) found.push_back(entry.path().string());
    }
    return found;
  }
  Stream Exec(const std::string& script) {
    v1::CoordinatorMessage message;
    v1::OpenExec& open = *message.mutable_open_exec();
    open.set_transfer(1);
    open.set_job_id(kJob);
    open.set_generation(1);
    for (const std::string& word : {std::string("/bin/sh"), std::string("-c"), script}) {
      open.mutable_start()->add_command(word);
    }
    coordinator_->Send(message);
    Stream stream;
    EXPECT_TRUE(coordinator_->WaitForStream(
        1, [](const Stream& seen) { return seen.finished; }, &stream));
    return stream;
  }
};

TEST_F(SecretJobsTest, RankGetsSecretAndNothingElseDoes) {
  MakeFifo("ready");
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(LaunchWithSecret(
      absl::StrCat(kPrintDigest, "; echo x > ", Path("ready"), "; cat ", Path("go"))));
  Read(Path("ready"));
  WaitForRank(0, IsStarted);
  EXPECT_THAT(FilesWithValue(), ::testing::IsEmpty()) << "while the rank runs";

  EXPECT_EQ(Exec("echo ${TOKEN-unset}").out, "unset\n");

  // The records that rebuild a job come without it.
  v1::CoordinatorMessage request;
  request.mutable_send_job_records();
  coordinator_->Send(request);
  v1::WorkerMessage records;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_job_records(); }, &records));
  ASSERT_EQ(records.job_records().launches_size(), 1);
  EXPECT_EQ(records.SerializeAsString().find(kValue), std::string::npos);

  // A later worker adopts the rank without it.
  agent_.reset();
  EXPECT_THAT(FilesWithValue(), ::testing::IsEmpty());
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  Unblock("go");
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
  EXPECT_THAT(LogOf("stdout"), HasSubstr(Sha256Hex(kValue)));
  EXPECT_THAT(FilesWithValue(), ::testing::IsEmpty()) << "after its end";
}

// The rank's own process has its environment in /proc, as every process; its shim does not keep it
// there.
TEST_F(SecretJobsTest, ShimRemovesSecretFromItsOwnEnvironment) {
  MakeFifo("ready");
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(
      LaunchWithSecret(absl::StrCat("echo $PPID > ", Path("ready"), "; cat ", Path("go"))));
  const std::string shim = Read(Path("ready"));
  WaitForRank(0, IsStarted);
  const std::string environment =
      Read(absl::StrCat("/proc/", shim.substr(0, shim.find('\n')), "/environ"));
  EXPECT_THAT(environment, HasSubstr("MUSTER_SHIM_MARK="));
  EXPECT_EQ(environment.find(kValue), std::string::npos);
  Unblock("go");
  WaitForRank(0, IsExited);
}

TEST_F(SecretJobsTest, JobCannotReplacePlacementWithSecret) {
  StartBoth();
  v1::CoordinatorMessage message =
      LaunchWithSecret("echo rank $RANK; " + std::string(kPrintDigest));
  auto& secrets = *message.mutable_launch()->mutable_spec()->mutable_secret_env();
  secrets["RANK"] = "hf-token";
  secrets["PATH_OF_JOB"] = "hf-token";
  coordinator_->Send(message);
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
  EXPECT_THAT(LogOf("stdout"), HasSubstr("rank 0\n"));
  EXPECT_THAT(LogOf("stdout"), HasSubstr(Sha256Hex(kValue)));
}

TEST_F(SecretJobsTest, FilesOfNodeReplaceMissingSecrets) {
  std::filesystem::create_directories(Path("secrets/alice"));
  std::ofstream(Path("secrets/alice/hf-token")) << kValue << "\n";
  std::filesystem::permissions(Path("secrets/alice/hf-token"), std::filesystem::perms::owner_read);
  secrets_dir_ = Path("secrets");
  StartBoth();
  coordinator_->Send(LaunchWithSecret(kPrintDigest, /*sent=*/false));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
  EXPECT_THAT(LogOf("stdout"), HasSubstr(Sha256Hex(kValue)));
  EXPECT_THAT(FilesWithValue(), ::testing::IsEmpty());
}

TEST_F(SecretJobsTest, MissingSecretFailsLaunchForGood) {
  secrets_dir_ = Path("secrets");
  StartBoth();
  coordinator_->Send(LaunchWithSecret("true", /*sent=*/false));
  const v1::ExitInfo exit = WaitForRank(0, IsExited).exit();
  EXPECT_EQ(exit.failure().phase(), "launching");
  EXPECT_TRUE(exit.failure().not_retryable());
  EXPECT_THAT(
      exit.failure().message(),
      HasSubstr(absl::StrCat("the coordinator has no such secret of alice, and this node "
                             "has no file ",
                             Path("secrets/alice/hf-token"), " or ", Path("secrets/hf-token"))));
}

}  // namespace
}  // namespace muster::agent
