#include "cli/config.h"

#include <cstdlib>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> Read(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/config";
  std::ofstream(path) << text;
  return ReadConfig(path, {"coordinator", "output"});
}

TEST(ConfigTest, NamesAndValues) {
  const auto flags = Read("# mine\n\n coordinator = head:7070 \noutput=json");
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_THAT(*flags, ElementsAre("--coordinator=head:7070", "--output=json"));
  EXPECT_TRUE(Read("")->empty());
}

TEST(ConfigTest, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(std::string(Read("output=json\ncordinator=x").status().message()),
              HasSubstr("config:2: 'cordinator' is not an option; did you mean 'coordinator'?"));
  EXPECT_THAT(std::string(Read("output").status().message()), HasSubstr("expected output=VALUE"));
  EXPECT_EQ(ReadConfig("/no/such/file", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadConfig("/tmp", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ConfigTest, DefaultPath) {
  setenv("HOME", "/home/someone", 1);
  unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(DefaultConfigPath(), "/home/someone/.config/muster/config");
  setenv("XDG_CONFIG_HOME", "/x", 1);
  EXPECT_EQ(DefaultConfigPath(), "/x/muster/config");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");
  EXPECT_EQ(DefaultConfigPath(), "");
}

}  // namespace
}  // namespace muster::cli
