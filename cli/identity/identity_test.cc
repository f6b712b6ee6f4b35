// Files that `muster cluster init` and `muster cert` write.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/identity/authority.h"
#include "cli/identity/identity_files.h"
#include "cli/identity/node_join.h"
#include "common/security/authority.h"
#include "common/security/certificate.h"
#include "common/security/text_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class IdentityFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "identity.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    init_.config = directory_ + "/etc/coordinator";
    init_.default_data_dir = directory_ + "/data";
    init_.listen = "0.0.0.0:7070";
    init_.names = {"head", "10.0.0.1"};
    init_.admin_dir = directory_ + "/admin";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Read(const std::string& path) const {
    return security::ReadTextFile(directory_ + "/" + path).value_or("");
  }
  security::CertificateInfo Certificate(const std::string& path) const {
    return *security::ReadCertificate(Read(path));
  }
  mode_t Mode(const std::string& path) const {
    struct stat info = {};
    EXPECT_EQ(stat((directory_ + "/" + path).c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }

  std::string directory_;
  ClusterInit init_;
  const absl::Time now_ = absl::Now();
};

TEST_F(IdentityFilesTest, InitMakesAClusterAndKeepsIt) {
  const auto first = InitCluster(init_, now_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->address, "head:7070");
  EXPECT_THAT(first->lines, ElementsAre(StartsWith("created"), StartsWith("created"),
                                        StartsWith("created"), StartsWith("created")));
  EXPECT_FALSE(first->join_token.empty());
  EXPECT_THAT(Certificate("data/identity/coordinator.pem").hosts, ElementsAre("head", "10.0.0.1"));
  EXPECT_EQ(security::PinOf(Certificate("data/identity/ca.pem").public_key), first->ca_pin);
  EXPECT_THAT(Read("etc/coordinator"), HasSubstr("ca-key=" + directory_ + "/data/identity/ca.key"));
  EXPECT_THAT(Read("admin/config"), HasSubstr("coordinator=head:7070\n"));
  EXPECT_THAT(Read("data/identity/join-token"), Not(HasSubstr(first->join_token)))
      << "only its digest";
  for (const char* secret :
       {"data/identity/ca.key", "data/identity/coordinator.key", "data/identity/tokens",
        "data/identity/join-token", "admin/admin.key", "admin/admin.token"}) {
    EXPECT_EQ(Mode(secret), 0600u) << secret;
  }

  const std::string certificate = Read("data/identity/coordinator.pem");
  const std::string tokens = Read("data/identity/tokens");
  const auto again = InitCluster(init_, now_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->lines, ElementsAre(StartsWith("kept"), StartsWith("kept"), StartsWith("kept"),
                                        StartsWith("kept")));
  EXPECT_EQ(again->ca_pin, first->ca_pin);
  EXPECT_EQ(again->join_token, "");
  EXPECT_EQ(Read("data/identity/coordinator.pem"), certificate);
  EXPECT_EQ(Read("data/identity/tokens"), tokens);

  init_.names.push_back("head.example.org");
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  EXPECT_THAT(Certificate("data/identity/coordinator.pem").hosts,
              ElementsAre("head", "10.0.0.1", "head.example.org"));
}

TEST_F(IdentityFilesTest, FoldersOfSecretsBecomePrivate) {
  const std::vector<std::string> folders = {"data/identity", "admin", "ca"};
  for (const std::string& folder : folders) {
    std::filesystem::create_directories(directory_ + "/" + folder);
    ASSERT_EQ(chmod((directory_ + "/" + folder).c_str(), 0755), 0);
  }
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  ASSERT_TRUE(InitOffline(directory_ + "/ca", now_).ok());
  for (const std::string& folder : folders) EXPECT_EQ(Mode(folder), 0700u) << folder;
}

TEST_F(IdentityFilesTest, UsersOfACoordinatorWithItsOwnAuthorityGetTokensThere) {
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  OfflineIssue alice;
  alice.folder = directory_ + "/data/identity";
  alice.kind = "user";
  alice.name = "alice";
  ASSERT_TRUE(IssueOffline(alice, now_).ok());
  EXPECT_EQ(Read("data/identity/users/alice/config"),
            "coordinator=head:7070\ntoken-file=token\ntls-ca=ca.pem\ntls-cert=user.pem\n"
            "tls-key=user.key\n");
  std::string token = Read("data/identity/users/alice/token");
  ASSERT_FALSE(token.empty());
  token.pop_back();
  EXPECT_THAT(Read("data/identity/tokens"), HasSubstr("submit " + token + " alice\n"));
  EXPECT_FALSE(std::filesystem::exists(alice.folder + "/coordinator"));
  for (const char* folder : {"admin", "data/identity/users/alice"}) {
    for (const auto& file : std::filesystem::directory_iterator(directory_ + "/" + folder)) {
      EXPECT_EQ(file.status().permissions(), std::filesystem::perms(0600)) << file.path();
    }
  }
}

TEST_F(IdentityFilesTest, InitKeepsAnAdministratorsFolderWithAbsolutePaths) {
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  std::string config = "coordinator=head:7070\n";
  for (const auto& [name, file] : {std::pair("token-file", "admin.token"),
                                   {"tls-ca", "ca.pem"},
                                   {"tls-cert", "admin.pem"},
                                   {"tls-key", "admin.key"}}) {
    config += absl::StrCat(name, "=", init_.admin_dir, "/", file, "\n");
  }
  std::ofstream(init_.admin_dir + "/config") << config;
  EXPECT_TRUE(InitCluster(init_, now_).ok());
  EXPECT_EQ(Read("admin/config"), config);
}

TEST_F(IdentityFilesTest, InitKeepsSettingsAndChangesNoOtherCluster) {
  std::filesystem::create_directories(directory_ + "/etc");
  std::ofstream(init_.config) << "# mine\nkeep-jobs=77\ndata-dir=" << directory_ << "/elsewhere\n";
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  EXPECT_THAT(Read("etc/coordinator"), StartsWith("# mine\nkeep-jobs=77\ndata-dir="));
  EXPECT_NE(Read("elsewhere/identity/ca.pem"), "");

  ClusterInit other = init_;
  other.config = directory_ + "/other";
  other.names = {"other-head"};
  const absl::Status admin = InitCluster(other, now_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(admin));
  EXPECT_THAT(std::string(admin.message()), HasSubstr("--admin-dir"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/data")) << "nothing was made";

  std::ofstream(directory_ + "/third") << "tls-cert=/etc/other/server.pem\n";
  other.config = directory_ + "/third";
  other.admin_dir = directory_ + "/third-admin";
  const absl::Status settings = InitCluster(other, now_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(settings));
  EXPECT_THAT(std::string(settings.message()), HasSubstr("sets tls-cert=/etc/other/server.pem"));
}

TEST_F(IdentityFilesTest, OfflineAuthorityMakesFoldersOfMachinesAndUsers) {
  const std::string folder = directory_ + "/ca";
  ASSERT_TRUE(InitOffline(folder, now_).ok());
  const auto issue = [&](const std::string& kind, const std::string& name) {
    OfflineIssue request;
    request.folder = folder;
    request.kind = kind;
    request.name = name;
    request.coordinator = "head:7070";
    request.hosts = {"head", "10.0.0.1"};
    const auto written = IssueOffline(request, now_);
    EXPECT_TRUE(written.ok()) << written.status();
  };
  issue("coordinator", "head");
  issue("node", "node-1");
  issue("user", "alice");
  EXPECT_THAT(Certificate("ca/coordinator/coordinator.pem").hosts, ElementsAre("head", "10.0.0.1"));
  EXPECT_EQ(security::NodeOf(Certificate("ca/nodes/node-1/node.pem"))->node, "node-1");
  EXPECT_EQ(Certificate("ca/users/alice/user.pem").usage, security::Usage::kClient);
  EXPECT_THAT(Read("ca/nodes/node-1/worker"), HasSubstr("coordinator=head:7070\nname=node-1\n"));
  std::string token = Read("ca/users/alice/token");
  token.pop_back();
  EXPECT_THAT(Read("ca/coordinator/tokens"), HasSubstr("submit " + token + " alice\n"));
  const std::string before = Read("ca/users/alice/token");
  issue("user", "alice");
  EXPECT_EQ(Read("ca/users/alice/token"), before);

  const std::string path = folder + "/nodes/node-1/node.pem";
  const security::CertificateInfo old = Certificate("ca/nodes/node-1/node.pem");
  const auto renewed = RenewOffline(folder, {path}, now_ + absl::Hours(1));
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  const security::CertificateInfo info = Certificate("ca/nodes/node-1/node.pem");
  EXPECT_EQ(info.public_key, old.public_key);
  EXPECT_EQ(info.uris, old.uris);
  EXPECT_GT(info.not_after, old.not_after);
  ASSERT_TRUE(InitOffline(directory_ + "/theirs", now_).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(RenewOffline(directory_ + "/theirs", {path}, now_).status()));
}

TEST_F(IdentityFilesTest, FilesOfRootBelongToTheOwnerOfTheDataDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  constexpr uid_t kDaemon = 12345;
  const std::string data = directory_ + "/data";
  std::filesystem::create_directory(data);
  ASSERT_EQ(chown(data.c_str(), kDaemon, kDaemon), 0);
  ASSERT_TRUE(InitCluster(init_, now_).ok());
  for (const char* path : {"data/identity", "data/identity/ca.key", "data/identity/tokens",
                           "data/identity/coordinator.pem"}) {
    struct stat info = {};
    ASSERT_EQ(stat((directory_ + "/" + path).c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_uid, kDaemon) << path;
  }
}

TEST_F(IdentityFilesTest, JoinWaitsForTheCoordinatorUpToALimit) {
  NodeJoin join;
  join.coordinator = "127.0.0.1:1";
  join.ca_pin = "sha256:" + std::string(64, 'a');
  join.name = "node-1";
  join.config = directory_ + "/worker";
  join.data_dir = directory_ + "/node";
  join.patience = absl::Milliseconds(500);
  std::vector<std::string> lines;
  join.on_wait = [&](const std::string& line) { lines.push_back(line); };
  EXPECT_TRUE(absl::IsUnavailable(JoinCluster(join, now_).status()));
  EXPECT_THAT(lines, ElementsAre("cannot connect to 127.0.0.1:1; trying again for 500ms"));
  EXPECT_FALSE(std::filesystem::exists(join.config));
}

TEST_F(IdentityFilesTest, SettingsAreReplacedInPlaceOfOthers) {
  const std::string path = directory_ + "/worker";
  std::ofstream(path) << "coordinator=127.0.0.1:7070\n# note\nslots=4";
  SettingsFile settings = *SettingsFile::Read(path);
  settings.Replace("coordinator", "head:7070");
  EXPECT_TRUE(settings.Add("slots", "4").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(settings.Add("slots", "5")));
  ASSERT_TRUE(settings.Write().ok());
  EXPECT_EQ(Read("worker"), "# note\nslots=4\ncoordinator=head:7070\n");
}

}  // namespace
}  // namespace muster::cli
