#include "common/text/phase_text.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

std::string Text(uint64_t count, const std::string& unit) {
  v1::Progress progress;
  progress.set_phase("loading-data");
  progress.set_phase_progress(count);
  progress.set_phase_unit(unit);
  return PhaseText(progress);
}

TEST(PhaseText, ShowsCounterWithUnit) {
  EXPECT_EQ(Text(0, "files indexed"), "loading-data");
  EXPECT_EQ(Text(999, "files indexed"), "loading-data: 999 files indexed");
  EXPECT_EQ(Text(120'000, "files indexed"), "loading-data: 120,000 files indexed");
  EXPECT_EQ(Text(1'234'567, "files indexed"), "loading-data: 1,234,567 files indexed");
}

TEST(PhaseText, ShowsTheTotalIfItIsKnown) {
  v1::Progress progress;
  progress.set_phase("evaluating");
  progress.set_phase_progress(3200);
  progress.set_phase_total(10'000);
  progress.set_phase_unit("images");
  EXPECT_EQ(PhaseText(progress), "evaluating: 3,200 of 10,000 images");
}

TEST(PhaseText, ShowsOnlyPhaseThatDoesNotCount) {
  EXPECT_EQ(Text(7, ""), "loading-data");
  EXPECT_EQ(PhaseText(v1::Progress()), "");
}

}  // namespace
}  // namespace muster
