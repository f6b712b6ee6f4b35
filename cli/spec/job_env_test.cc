#include "cli/spec/job_env.h"

#include <stdlib.h>

#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string EnvFile(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/job.env");
  std::ofstream(path) << text;
  return path;
}

std::map<std::string, std::string> EnvOf(const v1::JobSpec& spec) {
  return {spec.env().begin(), spec.env().end()};
}

TEST(JobEnvTest, EntriesOverrideFilesOverrideSpec) {
  v1::JobSpec spec;
  (*spec.mutable_env())["A"] = "spec";
  (*spec.mutable_env())["B"] = "spec";
  (*spec.mutable_env())["C"] = "spec";
  const std::string file = EnvFile("# comment\n\nB=file\n  C=file\r\nD=\"x = y # z\"\n#E=1\nE=\n");
  ASSERT_TRUE(AddVariables({file}, {"C=entry", "F=a=b", "C=last"}, spec).ok());
  EXPECT_THAT(EnvOf(spec),
              ElementsAre(Pair("A", "spec"), Pair("B", "file"), Pair("C", "last"),
                          Pair("D", "\"x = y # z\""), Pair("E", ""), Pair("F", "a=b")));
}

TEST(JobEnvTest, NameAloneTakesOwnValue) {
  setenv("JOB_ENV_TEST_SET", "mine", 1);
  unsetenv("JOB_ENV_TEST_UNSET");
  v1::JobSpec spec;
  ASSERT_TRUE(AddVariables({}, {"JOB_ENV_TEST_SET"}, spec).ok());
  EXPECT_THAT(EnvOf(spec), ElementsAre(Pair("JOB_ENV_TEST_SET", "mine")));
  const absl::Status status = AddVariables({}, {"JOB_ENV_TEST_UNSET"}, spec);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "--env 'JOB_ENV_TEST_UNSET': is not set here; give JOB_ENV_TEST_UNSET=VALUE");
}

TEST(JobEnvTest, ReportsWrongFiles) {
  v1::JobSpec spec;
  EXPECT_TRUE(absl::IsNotFound(AddVariables({"/no/such.env"}, {}, spec)));
  const std::string file = EnvFile("A=1\nexport\n");
  EXPECT_THAT(AddVariables({file}, {}, spec).message(),
              HasSubstr("job.env:2: expected NAME=VALUE"));
  EXPECT_FALSE(AddVariables({EnvFile("A=\xff\n")}, {}, spec).ok());
  EXPECT_FALSE(AddVariables({}, {"A=\xff"}, spec).ok());
}

}  // namespace
}  // namespace muster::cli
