#include "common/process/build_id.h"

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/process/program_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string OutputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  char buffer[4096];
  while (const size_t size = fread(buffer, 1, sizeof(buffer), pipe.get())) {
    output.append(buffer, size);
  }
  return output;
}

TEST(BuildIdTest, MatchesReadelf) {
  const std::string notes =
      OutputOf(absl::StrCat("readelf -n '", (ProgramFolder() / "build_id_test").string(), "'"));
  if (BuildId().empty()) {
    EXPECT_THAT(notes, Not(HasSubstr("Build ID:")));
  } else {
    EXPECT_THAT(notes, HasSubstr(absl::StrCat("Build ID: ", BuildId(), "\n")));
  }
}

}  // namespace
}  // namespace muster
