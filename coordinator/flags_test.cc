#include "coordinator/flags.h"

#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

std::optional<int> Parse(std::vector<const char*> arguments, Flags& flags) {
  arguments.insert(arguments.begin(), "muster-coordinator");
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data(), flags);
}

class FlagsTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("MUSTER_LISTEN"); }
  std::string UsageError(std::vector<const char*> arguments) {
    ::testing::internal::CaptureStderr();
    Flags flags;
    EXPECT_THAT(Parse(std::move(arguments), flags), Optional(2));
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(FlagsTest, HasDefaults) {
  Flags flags;
  EXPECT_EQ(Parse({"--data-dir=/d"}, flags), std::nullopt);
  EXPECT_EQ(flags.listen, "127.0.0.1:7070");
  EXPECT_EQ(flags.data_dir, "/d");
  EXPECT_EQ(flags.lease, absl::Seconds(10));
}

TEST_F(FlagsTest, CommandLineOverridesEnvironmentOverridesFile) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/coordinator.conf");
  std::ofstream(path) << "listen=127.0.0.1:1\nlease=20s\n";
  const std::string config = "--config=" + path;
  Flags file;
  EXPECT_EQ(Parse({"--data-dir=/d", config.c_str()}, file), std::nullopt);
  EXPECT_EQ(file.listen, "127.0.0.1:1");
  EXPECT_EQ(file.lease, absl::Seconds(20));
  setenv("MUSTER_LISTEN", "127.0.0.1:2", 1);
  Flags environment;
  EXPECT_EQ(Parse({"--data-dir=/d", config.c_str()}, environment), std::nullopt);
  EXPECT_EQ(environment.listen, "127.0.0.1:2");
  Flags command_line;
  EXPECT_EQ(Parse({"--data-dir=/d", "--listen=127.0.0.1:3"}, command_line), std::nullopt);
  EXPECT_EQ(command_line.listen, "127.0.0.1:3");
}

TEST_F(FlagsTest, ParsesJobMemory) {
  Flags flags;
  EXPECT_EQ(Parse({"--data-dir=/d"}, flags), std::nullopt);
  EXPECT_EQ(flags.job_memory, std::nullopt);
  EXPECT_EQ(Parse({"--data-dir=/d", "--job-memory=2GiB"}, flags), std::nullopt);
  EXPECT_THAT(flags.job_memory, Optional(uint64_t{2} << 30));
  for (const char* bad : {"--job-memory=0", "--job-memory=1000", "--job-memory=lots"}) {
    EXPECT_THAT(UsageError({"--data-dir=/d", bad}), HasSubstr("--job-memory")) << bad;
  }
}

TEST_F(FlagsTest, ParsesRetention) {
  Flags flags;
  EXPECT_EQ(Parse({"--data-dir=/d"}, flags), std::nullopt);
  EXPECT_EQ(flags.keep_jobs, 10000u);
  EXPECT_EQ(flags.keep_jobs_for, absl::InfiniteDuration());
  EXPECT_EQ(Parse({"--data-dir=/d", "--keep-jobs=0", "--keep-jobs-for=30d"}, flags), std::nullopt);
  EXPECT_EQ(flags.keep_jobs, 0u);
  EXPECT_EQ(flags.keep_jobs_for, absl::Hours(720));
  EXPECT_EQ(Parse({"--data-dir=/d", "--keep-jobs-for=1h30m"}, flags), std::nullopt);
  EXPECT_EQ(flags.keep_jobs_for, absl::Minutes(90));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--keep-jobs=-1"}), HasSubstr("--keep-jobs"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--keep-jobs=many"}), HasSubstr("--keep-jobs"));
  for (const char* age :
       {"--keep-jobs-for=d", "--keep-jobs-for=0d", "--keep-jobs-for=-1h", "--keep-jobs-for=30"}) {
    EXPECT_THAT(UsageError({"--data-dir=/d", age}), HasSubstr("such as 36h or 30d")) << age;
  }
}

TEST_F(FlagsTest, CheckpointDirectoryIsAbsolute) {
  Flags flags;
  EXPECT_EQ(Parse({"--data-dir=/d", "--checkpoint-dir=/shared/"}, flags), std::nullopt);
  EXPECT_EQ(flags.checkpoint_dir, "/shared");
  EXPECT_THAT(UsageError({"--data-dir=/d", "--checkpoint-dir=shared"}),
              HasSubstr("'shared' is not an absolute path"));
}

TEST_F(FlagsTest, NonLoopbackAddressRequiresInsecureBind) {
  EXPECT_THAT(UsageError({"--data-dir=/d", "--listen=0.0.0.0:7070"}), HasSubstr("--insecure-bind"));
  Flags flags;
  EXPECT_EQ(Parse({"--data-dir=/d", "--listen=0.0.0.0:7070", "--insecure-bind"}, flags),
            std::nullopt);
}

TEST_F(FlagsTest, RequiresTlsCertAndKeyTogether) {
  EXPECT_THAT(UsageError({"--data-dir=/d", "--tls-cert=/c"}), HasSubstr("--tls-key"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--tls-key=/k"}), HasSubstr("--tls-cert"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--tls-cert=/none/c", "--tls-key=/none/k"}),
              HasSubstr("--tls-cert: read /none/c: No such file"));
}

TEST_F(FlagsTest, RejectsInvalidFlags) {
  EXPECT_THAT(UsageError({}), HasSubstr("--data-dir"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--lisen=x"}), HasSubstr("--lisen"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--listen=7070"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--lease=ten"}), HasSubstr("duration"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--lease=2s"}), HasSubstr("three times"));
  EXPECT_THAT(UsageError({"--data-dir=/d", "--store=oracle"}), HasSubstr("sqlite"));
}

TEST_F(FlagsTest, PrintsHelpAndVersion) {
  ::testing::internal::CaptureStdout();
  Flags flags;
  EXPECT_THAT(Parse({"--help"}, flags), Optional(0));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("--heartbeat-interval"));
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Parse({"--version"}, flags), Optional(0));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("muster-coordinator "));
}

}  // namespace
}  // namespace muster
