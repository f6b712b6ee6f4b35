#include "trainer/exit_code.h"

#include "gtest/gtest.h"

namespace muster::train {
namespace {

TEST(ExitCodeTest, IsKeptInStatusPayload) {
  const absl::Status plain = absl::NotFoundError("x");
  EXPECT_EQ(ExitCodeOf(plain), kExitFailure);
  const absl::Status marked = WithExitCode(plain, kExitNoInput);
  EXPECT_EQ(ExitCodeOf(marked), kExitNoInput);
  EXPECT_EQ(marked.message(), "x");
  EXPECT_EQ(ExitCodeOf(WithExitCode(marked, kExitBadSpec)),
            kExitNoInput);  // the first code is kept
  EXPECT_TRUE(WithExitCode(absl::OkStatus(), kExitBadSpec).ok());
}

TEST(ExitCodeTest, OnlySpecificCodesArePermanent) {
  EXPECT_FALSE(IsPermanent(kExitFailure));
  EXPECT_FALSE(IsPermanent(kExitNoDevice));
  EXPECT_TRUE(IsPermanent(kExitNoInput));
  EXPECT_TRUE(IsPermanent(kExitCannotCreate));
  EXPECT_TRUE(IsPermanent(kExitBadSpec));
}

}  // namespace
}  // namespace muster::train
