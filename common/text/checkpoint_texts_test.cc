#include "common/text/checkpoint_texts.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(CheckpointTextsTest, ComposePathsAndFailures) {
  v1::CheckpointStatus status;
  status.set_dir("/c");
  EXPECT_EQ(NewestCheckpointPath(status), "");
  EXPECT_EQ(BestCheckpointPath(status), "");
  EXPECT_EQ(CheckpointFailures(status), "");
  status.set_step(60);
  EXPECT_EQ(NewestCheckpointPath(status), "/c/step-00000060");
  status.set_name("step-00000060.g2");
  EXPECT_EQ(NewestCheckpointPath(status), "/c/step-00000060.g2");
  status.set_best_name("step-00000020.g1");
  EXPECT_EQ(BestCheckpointPath(status), "/c/step-00000020.g1");
  status.set_failures(3);
  status.set_failed_step(400);
  status.set_failure("no space left on device");
  EXPECT_EQ(CheckpointFailures(status),
            "3 failed in this generation, the latest at step 400: no space left on device");
}

}  // namespace
}  // namespace muster
