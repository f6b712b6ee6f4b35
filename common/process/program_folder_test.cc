#include "common/process/program_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr char kExpected[] = "EXPECTED_PROGRAM_FOLDER";

// The path of this test program.
std::filesystem::path Self() { return std::filesystem::read_symlink("/proc/self/exe"); }

// Runs the first test below in another process, with the given expected folder.
int RunExpecting(const std::filesystem::path& expected, const std::string& command) {
  setenv(kExpected, expected.c_str(), 1);
  const int status = system((command + " --gtest_filter=*IsTheFolderOfTheFile").c_str());
  unsetenv(kExpected);
  return status;
}

TEST(ProgramFolderTest, IsTheFolderOfTheFile) {
  const char* expected = getenv(kExpected);
  EXPECT_EQ(ProgramFolder(), expected != nullptr ? expected : Self().parent_path());
}

TEST(ProgramFolderTest, WorksWhenStartedThroughTheDynamicLoader) {
  EXPECT_EQ(
      RunExpecting(Self().parent_path(), "/lib64/ld-linux-x86-64.so.2 '" + Self().string() + "'"),
      0);
}

TEST(ProgramFolderTest, IsTheLauncherFolderInABundle) {
  const std::filesystem::path bundle =
      std::filesystem::path(testing::TempDir()) / "a bundle of programs";
  std::filesystem::create_directories(bundle / "libexec");
  const std::filesystem::path program = bundle / "libexec/program";
  std::filesystem::copy_file(Self(), program, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(RunExpecting(bundle / "bin", "'" + program.string() + "'"), 0);
  std::filesystem::remove_all(bundle);
}

}  // namespace
}  // namespace muster
