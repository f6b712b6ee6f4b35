#include "cli/files/script.h"

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

}  // namespace
}  // namespace muster::cli
