#include "cli/files/script.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

TEST(ScriptTest, FindsScript) {
  const std::pair<const char*, const char*> cases[] = {
      {"python3 train.py --lr 0.1", "train.py"},
      {"/usr/bin/python3.11 -u -X dev -Wignore src/train.py -c x", "src/train.py"},
      {"python -- train.py", "train.py"},
      {"python3 --check-hash-based-pycs=always train.py", "train.py"},
      {"bash -eux train.sh -c", "train.sh"},
      {"sh -o pipefail ../train.sh", "../train.sh"},
      {"perl -w train.pl", "train.pl"},
      {"./train.sh a", "./train.sh"},
      {"bin/train", "bin/train"},
      {"python3 -m train", ""},
      {"python3 -um train", ""},
      {"python3 -c pass train.py", ""},
      {"bash -lc ./train.sh", ""},
      {"node -e 1 train.js", ""},
      {"python3 - train.py", ""},
      {"python3", ""},
      {"python3 -W", ""},
      {"python3 /opt/train.py", ""},
      {"/opt/train", ""},
      {"train.sh", ""},
      {"torchrun --nproc-per-node 2 train.py", "train.py"},
      {"python3 -m torch.distributed.run train.py", "train.py"},
      {"accelerate launch train.py", "train.py"},
      {"env A=1 python3 train.py", "train.py"},
      {"env A=1 ./train.sh", "./train.sh"},
      {"torchrun /opt/train.py", ""},
      {"echo ./train.sh", ""},
  };
  for (const auto& [command, script] : cases) {
    const std::vector<std::string> words = absl::StrSplit(command, ' ');
    EXPECT_EQ(ScriptOf(words), script) << command;
  }
  EXPECT_EQ(ScriptOf({}), "");
}

TEST(CommandForTest, KnowsScriptsByTheirNames) {
  EXPECT_EQ(CommandFor("src/train.py"), "python3 src/train.py");
  EXPECT_EQ(CommandFor("train.sh"), "bash train.sh");
  EXPECT_EQ(CommandFor("job.yaml"), "");
  EXPECT_EQ(CommandFor("-"), "");
}

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
