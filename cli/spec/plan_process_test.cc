#include "cli/spec/plan_process.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>

#include "cli/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

// A fake muster-rank: a shell script in the test's own directory.
class Script {
 public:
  explicit Script(const std::string& body) : directory_(testing::TempDir() + "script.XXXXXX") {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    std::ofstream(path()) << "#!/bin/sh\n" << body << "\n";
    EXPECT_EQ(chmod(path().c_str(), 0755), 0);
  }
  std::string path() const { return directory_ + "/rank"; }
  std::string file(const std::string& name) const { return directory_ + "/" + name; }

 private:
  std::string directory_;
};

std::string Quoted(const v1::PlanAnswer& answer) {
  std::string text;
  for (const unsigned char c : answer.SerializeAsString()) {
    char octal[8];
    snprintf(octal, sizeof(octal), "\\%03o", c);
    text += octal;
  }
  return "printf '" + text + "'";
}

TEST(RequestPlanTest, SendsTheSpecAndReturnsTheReport) {
  v1::PlanAnswer answer;
  answer.mutable_report()->set_parameters(421834);
  const Script script("cat > \"$(dirname $0)/spec\"; echo \"$@\" > \"$(dirname $0)/flags\"; " +
                      Quoted(answer));
  PlanRequest request;
  request.spec.set_name(std::string(200'000, 'x'));  // more than a pipe holds
  request.ranks = 3;
  request.time = true;
  request.kernels = true;
  request.device = "cuda";
  const auto report = RequestPlan(script.path(), request);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->parameters(), 421834u);
  std::ifstream spec(script.file("spec"), std::ios::binary);
  v1::JobSpec read;
  EXPECT_TRUE(read.ParseFromIstream(&spec));
  EXPECT_EQ(read.name().size(), 200'000u);
  std::ifstream flags(script.file("flags"));
  const std::string line{std::istreambuf_iterator<char>(flags), {}};
  EXPECT_EQ(line, "--explain-plan --ranks=3 --time --kernels --device=cuda\n");
}

TEST(RequestPlanTest, ErrorsKeepMessageAndExitCode) {
  v1::PlanAnswer answer;
  answer.set_error("layer 3 does not fit");
  for (const int exit_code : {kExitBadSpec, kExitNoInput, kExitFailure}) {
    const Script script(Quoted(answer) + "; exit " + std::to_string(exit_code));
    const absl::Status status = RequestPlan(script.path(), {}).status();
    EXPECT_EQ(status.message(), "layer 3 does not fit");
    EXPECT_EQ(PlanExitCode(status), exit_code);
  }
}

TEST(RequestPlanTest, FailsIfTheProgramDoesNotAnswer) {
  const std::pair<const char*, const char*> cases[] = {
      {"exit 0", "exited without an answer"},
      {"echo nonsense; exit 1", "exited without an answer"},
      {"kill -9 $$", "was killed by signal 9"},
  };
  for (const auto& [body, expected] : cases) {
    const Script script(body);
    const absl::Status status = RequestPlan(script.path(), {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected)) << body;
    EXPECT_THAT(std::string(status.message()), HasSubstr(script.path()));
    EXPECT_EQ(PlanExitCode(status), kExitFailure);
  }
  EXPECT_THAT(std::string(RequestPlan("/no/such/rank", {}).status().message()),
              HasSubstr("/no/such/rank"));
}

}  // namespace
}  // namespace muster::cli
