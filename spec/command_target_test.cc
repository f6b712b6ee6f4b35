#include "spec/command_target.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace muster::spec {
namespace {

TEST(CommandTargetTest, FindsScriptOrModule) {
  const struct {
    const char* command;
    const char* script;
    const char* module;
  } kCases[] = {
      {"python3 train.py --lr 0.1", "train.py", ""},
      {"/usr/bin/python3.11 -u -X dev -Wignore src/train.py -c x", "src/train.py", ""},
      {"python -- train.py", "train.py", ""},
      {"python3 --check-hash-based-pycs=always train.py", "train.py", ""},
      {"bash -eux train.sh -c", "train.sh", ""},
      {"sh -o pipefail ../train.sh", "../train.sh", ""},
      {"perl -w train.pl", "train.pl", ""},
      {"./train.sh a", "./train.sh", ""},
      {"/opt/train", "/opt/train", ""},
      {"echo ./train.sh", "echo", ""},
      {"python3 -m train x.py", "", "train"},
      {"python3 -um train", "", "train"},
      {"python3 -mtrain", "", "train"},
      {"python3 -m", "", ""},
      {"python3 -c pass train.py", "", ""},
      {"bash -lc ./train.sh", "", ""},
      {"node -e 1 train.js", "", ""},
      {"python3 - train.py", "", ""},
      {"python3", "", ""},
      {"python3 -W", "", ""},
      {"torchrun train.py", "train.py", ""},
      {"/venv/bin/torchrun --nproc-per-node 2 src/train.py --conf a.py", "src/train.py", ""},
      {"torchrun --nnodes=2 -m pkg.mod --lr 1", "", "pkg.mod"},
      {"torchrun --standalone", "", ""},
      {"python3 -m torch.distributed.run train.py", "train.py", ""},
      {"python3 -mtorch.distributed.launch --nnodes 2 train.py", "train.py", ""},
      {"python3 -u -m torch.distributed.run -m pkg.mod", "", "pkg.mod"},
      {"accelerate launch --config_file a.yaml train.py", "train.py", ""},
      {"deepspeed --num_gpus 2 train.py", "train.py", ""},
      {"env A=1 python3 train.py", "train.py", ""},
      {"/usr/bin/env -i -u B -C /srv A=1 torchrun train.py", "train.py", ""},
      {"env A=1 ./train.sh", "./train.sh", ""},
      {"env", "env", ""},
      {"env A=1", "env", ""},
  };
  for (const auto& [command, script, module] : kCases) {
    const CommandTarget target = TargetOf(absl::StrSplit(command, ' '));
    EXPECT_EQ(target.script, script) << command;
    EXPECT_EQ(target.module, module) << command;
  }
  EXPECT_EQ(TargetOf({"env", "A=1", "python3", "-c", "pass"}).program, "python3");
  EXPECT_EQ(TargetOf({}).program, "");
}

}  // namespace
}  // namespace muster::spec
