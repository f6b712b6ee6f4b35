#include "worker/gpu/cuda_requirement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::gpu {
namespace {

TEST(ParseRequiredCudaTest, ReadsVersions) {
  EXPECT_EQ(*ParseRequiredCuda("12.8"), 12080);
  EXPECT_EQ(*ParseRequiredCuda("13.0"), 13000);
  EXPECT_EQ(*ParseRequiredCuda("none"), 0);
  EXPECT_TRUE(ParseRequiredCuda("auto").ok());
  for (const char* wrong : {"", "13", "13.", "13.0.1", "-1.0", "new"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRequiredCuda(wrong).status())) << wrong;
  }
}

TEST(DriverProblemTest, ComparesMajorVersions) {
  struct Case {
    int required;
    std::optional<int> supported;
    bool good;
  };
  for (const Case& c :
       {Case{13000, 13000, true}, Case{13010, 13000, true}, Case{13000, 12080, false},
        Case{12080, 13000, true}, Case{12080, 12020, true}, Case{12080, 11080, false},
        Case{0, 11000, true}, Case{13000, std::nullopt, true}}) {
    EXPECT_EQ(DriverProblem(c.required, c.supported, "1.2").empty(), c.good)
        << c.required << " on " << c.supported.value_or(0);
  }
}

TEST(DriverProblemTest, NamesTheRemedies) {
  EXPECT_EQ(DriverProblem(13000, 12040, "550.54.15"),
            "driver 550.54.15 supports CUDA 12.4, train jobs need CUDA 13.0: install driver "
            "580.65.06 or newer, or set --required-cuda=none if this node runs command jobs only");
}

}  // namespace
}  // namespace muster::gpu
