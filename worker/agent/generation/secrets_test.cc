#include "worker/agent/generation/secrets.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SecretsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Other users can reach it.
    directory_ = "/tmp/muster-secrets-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    std::filesystem::create_directory(directory_ + "/alice");
    launch_.set_owner("alice");
    (*launch_.mutable_spec()->mutable_secret_env())["TOKEN"] = "hf-token";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
  }
  absl::StatusOr<std::vector<std::string>> Resolve(const SecretValues& sent = {}) {
    return ResolveSecrets(launch_, sent, directory_);
  }
  std::string ErrorOf(const absl::StatusOr<std::vector<std::string>>& result) {
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    return std::string(result.status().message());
  }

  std::string directory_;
  v1::Launch launch_;
};

TEST_F(SecretsTest, TakeSecretsRemovesThemFromLaunch) {
  (*launch_.mutable_secrets())["hf-token"] = "hunter2";
  EXPECT_THAT(TakeSecrets(launch_), ElementsAre(::testing::Pair("hf-token", "hunter2")));
  EXPECT_EQ(launch_.SerializeAsString().find("hunter2"), std::string::npos);
}

TEST_F(SecretsTest, PrefersCoordinatorThenFileOfOwnerThenCommonFile) {
  Write("hf-token", "common\n");
  EXPECT_THAT(*Resolve(), ElementsAre("TOKEN=common"));
  Write("alice/hf-token", "of alice\n");
  EXPECT_THAT(*Resolve(), ElementsAre("TOKEN=of alice"));
  EXPECT_THAT(*Resolve({{"hf-token", "sent"}}), ElementsAre("TOKEN=sent"));
}

TEST_F(SecretsTest, KeepsAllButTheLastNewline) {
  Write("hf-token", "one\ntwo\n\n");
  EXPECT_THAT(*Resolve(), ElementsAre("TOKEN=one\ntwo\n"));
}

TEST_F(SecretsTest, MissingSecretNamesBothPlaces) {
  EXPECT_EQ(ErrorOf(Resolve()),
            absl::StrCat("secret hf-token (variable TOKEN) is missing: the coordinator has no such "
                         "secret of alice, and this node has no file ",
                         directory_, "/alice/hf-token or ", directory_,
                         "/hf-token; set it with: muster secret set hf-token"));
  EXPECT_THAT(ErrorOf(ResolveSecrets(launch_, {}, "")),
              HasSubstr("this node has no folder of secrets (--secrets-dir)"));
}

TEST_F(SecretsTest, RefusesFileThatOthersCanRead) {
  Write("hf-token", "hunter2", 0644);
  const std::string error = ErrorOf(Resolve());
  EXPECT_THAT(error, HasSubstr(absl::StrCat("chmod 600 ", directory_, "/hf-token")));
  EXPECT_EQ(error.find("hunter2"), std::string::npos);
}

TEST_F(SecretsTest, FolderBecomesPrivateUnlessItIsOfRoot) {
  EXPECT_TRUE(CheckSecretsFolder("").ok());
  EXPECT_TRUE(CheckSecretsFolder(directory_ + "/missing").ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/missing"));
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ASSERT_TRUE(CheckSecretsFolder(directory_).ok());
  struct stat info;
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of root";
  for (const auto& [mode, accepted] : {std::pair(0755, true), std::pair(0777, false)}) {
    ASSERT_EQ(chmod(directory_.c_str(), mode), 0);
    ASSERT_EQ(seteuid(12345), 0);
    const absl::Status status = CheckSecretsFolder(directory_);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_EQ(status.ok(), accepted) << status;
  }
}

TEST_F(SecretsTest, RefusesNamesAndOwnersThatLeaveTheFolder) {
  (*launch_.mutable_spec()->mutable_secret_env())["TOKEN"] = "../hf-token";
  EXPECT_THAT(ErrorOf(Resolve()), HasSubstr("does not begin with '.'"));
  (*launch_.mutable_spec()->mutable_secret_env())["TOKEN"] = "hf-token";
  for (const std::string owner : {"..", ".", "../alice", "", "a/b"}) {
    launch_.set_owner(owner);
    EXPECT_THAT(ErrorOf(Resolve()), HasSubstr(absl::StrCat("no file ", directory_, "/hf-token;")));
  }
}

TEST_F(SecretsTest, RefusesValuesThatNoVariableCanHold) {
  Write("hf-token", std::string("a\0b", 3));
  EXPECT_THAT(ErrorOf(Resolve()), HasSubstr("zero byte"));
  Write("hf-token", std::string(limits::kSecretBytes + 1, 'x'));
  EXPECT_THAT(ErrorOf(Resolve()), HasSubstr("the limit of a secret is 65536"));
}

}  // namespace
}  // namespace muster::agent
