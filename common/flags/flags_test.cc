#include "common/flags/flags.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "CLI/CLI.hpp"
#include "common/process/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string WriteFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/config";
  std::ofstream(path) << text;
  return path;
}

absl::StatusOr<std::vector<std::string>> Read(const std::string& text) {
  return ReadConfig(WriteFile(text), {"coordinator", "output"});
}

TEST(ReadConfigTest, ParsesNamesAndValues) {
  const auto flags = Read("# mine\n\n; too\n coordinator = \"head:7070\" \noutput=json");
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(*flags, ElementsAre("--coordinator=head:7070", "--output=json"));
  EXPECT_THAT(*Read(""), IsEmpty());
}

TEST(ReadConfigTest, ErrorsNameTheLine) {
  EXPECT_THAT(std::string(Read("output=json\ncordinator=x").status().message()),
              HasSubstr("config:2: 'cordinator' is not an option; did you mean 'coordinator'?"));
  EXPECT_THAT(std::string(Read("output").status().message()), HasSubstr("expected output=VALUE"));
  EXPECT_EQ(ReadConfig("/no/such/file", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadConfig("/tmp", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(UserConfigPathTest, PrefersXdgConfigHomeToHome) {
  setenv("HOME", "/home/someone", 1);
  unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(UserConfigPath(), "/home/someone/.config/muster/config");
  setenv("XDG_CONFIG_HOME", "/x", 1);
  EXPECT_EQ(UserConfigPath(), "/x/muster/config");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");
  EXPECT_EQ(UserConfigPath(), "");
}

// A program with an option, a list and a flag.
class ParseTest : public ::testing::Test {
 protected:
  ParseTest() : app_("", "program") {
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.add_option("-l,--tls-level", level_);
    app_.add_option("--labels", labels_)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_flag("--pin", pin_);
    app_.add_option("--config", config_);
    app_.set_version_flag("--version", "1");
  }
  void TearDown() override {
    for (const char* name : {"MUSTER_TLS_LEVEL", "MUSTER_LABELS", "MUSTER_PIN", "MUSTER_CONFIG"}) {
      unsetenv(name);
    }
  }

  CLI::App app_;
  std::string level_ = "default";
  std::vector<std::string> labels_;
  bool pin_ = false;
  std::string config_;
};

TEST_F(ParseTest, FlagOverridesEnvironmentOverridesFileOverridesDefault) {
  ASSERT_TRUE(Parse(app_, {}).ok());
  EXPECT_EQ(level_, "default");
  const std::string path = WriteFile("tls-level=file\nlabels=a,b\npin=true\n");
  ASSERT_TRUE(Parse(app_, {"--config", path}).ok());
  EXPECT_EQ(level_, "file");
  EXPECT_THAT(labels_, ElementsAre("a", "b"));
  EXPECT_TRUE(pin_);
  setenv("MUSTER_CONFIG", path.c_str(), 1);
  setenv("MUSTER_TLS_LEVEL", "environment", 1);
  setenv("MUSTER_LABELS", "c", 1);
  setenv("MUSTER_PIN", "false", 1);
  ASSERT_TRUE(Parse(app_, {}).ok());
  EXPECT_EQ(level_, "environment");
  EXPECT_THAT(labels_, ElementsAre("c"));
  EXPECT_FALSE(pin_);
  ASSERT_TRUE(Parse(app_, {"--tls-level=flag", "--labels", "d", "--labels=e", "--pin"}).ok());
  EXPECT_EQ(level_, "flag");
  EXPECT_THAT(labels_, ElementsAre("d", "e"));
  EXPECT_TRUE(pin_);
  ASSERT_TRUE(Parse(app_, {"-l", "short"}).ok());
  EXPECT_EQ(level_, "short");
  setenv("MUSTER_TLS_LEVEL", "", 1);
  ASSERT_TRUE(Parse(app_, {}).ok());
  EXPECT_EQ(level_, "file");
}

TEST_F(ParseTest, PathsInTheFileAreRelativeToItsFolder) {
  const auto level = [this](const std::string& text, const std::vector<std::string>& given = {}) {
    EXPECT_TRUE(Parse(app_, given, WriteFile(text), {"tls-level"}).ok());
    return level_;
  };
  const std::string folder = std::filesystem::path(WriteFile("")).parent_path();
  EXPECT_EQ(level("tls-level=ca.pem\nlabels=a\n"), folder + "/ca.pem");
  EXPECT_THAT(labels_, ElementsAre("a"));
  EXPECT_EQ(level("tls-level=/etc/ca.pem\n"), "/etc/ca.pem");
  EXPECT_EQ(level("tls-level=ca.pem\n", {"--tls-level=here.pem"}), "here.pem");
}

TEST_F(ParseTest, RequiresTheConfigFileOnlyIfGivenExplicitly) {
  EXPECT_TRUE(Parse(app_, {}, "/no/such/file").ok());
  EXPECT_TRUE(absl::IsNotFound(Parse(app_, {"--config=/no/such/file"})));
  EXPECT_TRUE(absl::IsInvalidArgument(Parse(app_, {}, WriteFile("level=1\n"))));
  // --help works even if the file cannot be read.
  EXPECT_THROW(Parse(app_, {"--help", "--config=/no/such/file"}).IgnoreError(), CLI::CallForHelp);
}

TEST_F(ParseTest, ParseOrExitReturnsExitStatus) {
  const auto parse = [this](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int status = ParseOrExit(app_, static_cast<int>(arguments.size()), arguments.data());
    ::testing::internal::GetCapturedStderr();
    ::testing::internal::GetCapturedStdout();
    return status;
  };
  EXPECT_EQ(parse({"--pin"}), -1);
  EXPECT_EQ(parse({"--version"}), kExitSuccess);
  EXPECT_EQ(parse({"--help"}), kExitSuccess);
  EXPECT_EQ(parse({"--unknown"}), kExitUsage);
  EXPECT_EQ(parse({"--config=/no/such/file"}), kExitUsage);
}

}  // namespace
}  // namespace muster::flags
