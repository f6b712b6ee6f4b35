#include "common/security/local_token.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::security {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LocalTokenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/token.XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    tokens_ = directory_ + "/tokens";
    setenv("MUSTER_TOKEN_DIR", tokens_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("MUSTER_TOKEN_DIR");
    std::filesystem::remove_all(directory_);
  }
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  PublishedToken Publish(const std::string& address, const std::string& token) {
    absl::StatusOr<PublishedToken> published = PublishedToken::Publish(address, token);
    EXPECT_TRUE(published.ok()) << published.status();
    return *std::move(published);
  }
  static std::string Find(const std::string& target) {
    const absl::StatusOr<FoundToken> found = FindLocalToken(target);
    return found.ok() ? found->token : std::string(found.status().message());
  }

  std::string directory_;
  std::string tokens_;
};

TEST_F(LocalTokenTest, NewTokensAreLongAndUnique) {
  EXPECT_THAT(NewToken(), MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(NewToken(), NewToken());
}

TEST_F(LocalTokenTest, KeepTokenCreatesAPrivateFileOnce) {
  const std::string path = directory_ + "/token";
  const absl::StatusOr<std::string> first = KeepToken(path);
  ASSERT_TRUE(first.ok()) << first.status();
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(*KeepToken(path), *first);
}

TEST_F(LocalTokenTest, RejectsFilesReadableByOthersWithRemedy) {
  const std::string path = Write("open", "0123456789abcdef\n", 0640);
  const absl::Status status = ReadTokenFile(path).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600 " + path));
}

TEST_F(LocalTokenTest, ReadsTheFirstLineThatIsNotAComment) {
  EXPECT_EQ(*ReadTokenFile(Write("a", "\n# of mine\n  secret \nother\n")), "secret");
  EXPECT_THAT(std::string(ReadTokenFile(Write("b", "# nothing\n")).status().message()),
              HasSubstr("contains no token"));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTokenFile(Write("c", "two words\n")).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(
      ReadTokenFile(Write("d", std::string((1 << 20) + 1, '\n'))).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTokenFile(directory_).status()));
}

TEST_F(LocalTokenTest, IsFoundByAddressAndByHostName) {
  const PublishedToken published = Publish("127.0.0.1:7070", "secret");
  EXPECT_EQ(Find("127.0.0.1:7070"), "secret");
  EXPECT_EQ(Find("localhost:7070"), "secret");
  EXPECT_THAT(Find("127.0.0.1:7071"), HasSubstr("no token of a running coordinator at port 7071"));
  struct stat info;
  ASSERT_EQ(stat(tokens_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(LocalTokenTest, FindsTokenOfACoordinatorOnAllAddresses) {
  const PublishedToken published = Publish("0.0.0.0:7070", "secret");
  EXPECT_EQ(Find("127.0.0.1:7070"), "secret");
  EXPECT_EQ(Find("localhost:7070"), "secret");
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  EXPECT_EQ(Find(absl::StrCat(name, ":7070")), "secret");
  // An address reserved for documentation (RFC 5737).
  EXPECT_THAT(Find("192.0.2.1:7070"), HasSubstr("is not this machine"));
}

TEST_F(LocalTokenTest, DistinguishesAddressesWithTheSamePort) {
  const PublishedToken a = Publish("127.0.0.1:7070", "a");
  const PublishedToken b = Publish("127.0.0.2:7070", "b");
  EXPECT_EQ(Find("127.0.0.1:7070"), "a");
  EXPECT_EQ(Find("127.0.0.2:7070"), "b");
}

TEST_F(LocalTokenTest, IsRemovedWithItsCoordinator) {
  std::string path;
  {
    const PublishedToken published = Publish("127.0.0.1:7070", "secret");
    path = published.paths().front();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(LocalTokenTest, IgnoresAndRemovesFilesOfDeadCoordinators) {
  const pid_t child = fork();
  if (child == 0) {
    auto published = PublishedToken::Publish("127.0.0.1:7070", "old");
    _exit(published.ok() ? 0 : 1);  // leaves the file behind
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(tokens_ + "/127.0.0.1:7070"));
  EXPECT_THAT(Find("127.0.0.1:7070"), HasSubstr("no token of a running coordinator"));
  const PublishedToken other = Publish("127.0.0.1:7071", "new");
  EXPECT_FALSE(std::filesystem::exists(tokens_ + "/127.0.0.1:7070"));
  EXPECT_EQ(Find("127.0.0.1:7071"), "new");
}

TEST_F(LocalTokenTest, RemovesNoOtherFilesOfTheDirectory) {
  std::filesystem::create_directories(tokens_);
  const std::string published = "secret\n# token of the coordinator at 127.0.0.1:7070, pid 1\n";
  Write("tokens/id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\n");
  Write("tokens/notes", published);
  Write("tokens/host:7070", published);
  Write("tokens/127.0.0.1:http", published);
  Write("tokens/127.0.0.1:7070", "secret\n");
  Write("tokens/127.0.0.1:7071", "two words\n" + published);
  const std::string target = Write("target", published);
  std::filesystem::create_symlink(target, tokens_ + "/127.0.0.1:7072");
  std::vector<std::string> stale = {"127.0.0.1:7073", "127.0.0.1:7073.aB3xYz", ":::7073",
                                    "fe80::1%eth0:7073"};
  for (const std::string& name : stale) Write("tokens/" + name, published);
  if (geteuid() == 0) {
    const std::string other = Write("tokens/127.0.0.1:7074", published);
    ASSERT_EQ(chown(other.c_str(), 12345, 12345), 0);
  }
  std::set<std::string> expected;
  for (const auto& entry : std::filesystem::directory_iterator(tokens_)) {
    expected.insert(entry.path().filename());
  }
  for (const std::string& name : stale) expected.erase(name);
  expected.insert("127.0.0.1:7075");
  const PublishedToken token = Publish("127.0.0.1:7075", "new");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(tokens_)) {
    left.insert(entry.path().filename());
  }
  EXPECT_EQ(left, expected);
  EXPECT_TRUE(std::filesystem::exists(target));
}

TEST_F(LocalTokenTest, LeavesTheParentOfADirectoryThatIsNamed) {
  std::string parent = "/tmp/muster-token.XXXXXX";
  ASSERT_NE(mkdtemp(parent.data()), nullptr);
  ASSERT_EQ(chmod(parent.c_str(), 0711), 0);
  setenv("MUSTER_TOKEN_DIR", (parent + "/tokens").c_str(), 1);
  const PublishedToken published = Publish("127.0.0.1:7070", "secret");
  struct stat info;
  ASSERT_EQ(stat(parent.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711u);
  std::filesystem::remove_all(parent);
}

TEST_F(LocalTokenTest, RejectsADirectoryThatOthersCouldReplace) {
  chmod(directory_.c_str(), 0777);
  const absl::Status status = PublishedToken::Publish("127.0.0.1:7070", "secret").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST_F(LocalTokenTest, FindsNoTokenForAUnixDomainSocket) {
  EXPECT_FALSE(FindLocalToken("unix:/tmp/x").ok());
}

}  // namespace
}  // namespace muster::security
