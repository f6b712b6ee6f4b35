#include "common/process/machine_id.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

class MachineIdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "machine_id.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  std::string own() const { return directory_ + "/own"; }

  std::string directory_;
};

TEST_F(MachineIdTest, FirstFileWithAnIdCounts) {
  const std::string image = Write("image", "uninitialized\n");
  const std::string zero = Write("zero", "00000000-0000-0000-0000-000000000000\n");
  const std::string board = Write("board", "4C4C4544-0042-3510-8052-B4C04F333832\n");
  const std::string boot = Write("boot", "8c5c7a0e-55d5-4a4c-8f0b-1d2e3f405162\n");
  EXPECT_EQ(*FindMachineId({directory_ + "/none", image, zero, board, boot}, own()),
            "4c4c4544004235108052b4c04f333832");
  EXPECT_FALSE(std::filesystem::exists(own()));
}

TEST_F(MachineIdTest, DrawnIdIsKept) {
  const absl::StatusOr<std::string> drawn = FindMachineId({Write("empty", "")}, own());
  ASSERT_TRUE(drawn.ok()) << drawn.status();
  EXPECT_EQ(drawn->size(), 32u);
  EXPECT_EQ(*FindMachineId({}, own()), *drawn);
}

TEST_F(MachineIdTest, ReportsFileThatCannotBeWritten) {
  const absl::Status status = FindMachineId({}, directory_ + "/none/own").status();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/none/own"));
}

}  // namespace
}  // namespace muster
