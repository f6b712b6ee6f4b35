#include "cli/files/missing_module.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

class MissingModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    const fs::path here = fs::path(::testing::TempDir()) /
                          ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(here);
    fs::create_directories(here / "src/model");
    fs::current_path(here);
    for (const char* path : {"utils.py", "src/train.py", "src/utils.py", "src/model/a.py"}) {
      std::ofstream(path) << "pass";
    }
  }
  void TearDown() override { fs::current_path(before_); }

  static v1::Job Failed(const std::string& script, const std::string& error) {
    v1::Job job;
    job.mutable_spec()->add_command("python3");
    job.mutable_spec()->add_command(script);
    job.mutable_spec()->add_files()->set_path(script);
    job.mutable_first_failure()->mutable_exit()->set_stderr_tail("Traceback\n" + error + "\n");
    return job;
  }

  fs::path before_;
};

TEST_F(MissingModuleTest, NamesTheFileOrFolderBesideTheScript) {
  EXPECT_EQ(MissingModuleHint(Failed("train.py", "ModuleNotFoundError: No module named 'utils'")),
            "hint: train.py imports utils, which was not copied to the ranks; add --files utils.py "
            "before `--`, or `files: [utils.py]` to the spec");
  EXPECT_EQ(MissingModuleHint(Failed("src/train.py", "No module named 'model.net'")),
            "hint: src/train.py imports model, which was not copied to the ranks; add --files "
            "src/model before `--`, or `files: [src/model]` to the spec");
}

TEST_F(MissingModuleTest, GivesNoHintForOtherFailures) {
  EXPECT_EQ(MissingModuleHint(Failed("train.py", "No module named 'torch'")), "");
  EXPECT_EQ(MissingModuleHint(Failed("train.py", "ValueError: 3")), "");
  v1::Job job = Failed("train.py", "No module named 'utils'");
  job.mutable_spec()->set_workdir("/srv");
  EXPECT_EQ(MissingModuleHint(job), "");
  job = Failed("src/train.py", "No module named 'model.net'");
  job.mutable_spec()->add_files()->set_path("src/model/a.py");
  EXPECT_EQ(MissingModuleHint(job), "") << "it was copied";
}

}  // namespace
}  // namespace muster::cli
