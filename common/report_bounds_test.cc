#include "common/report_bounds.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Beyond(size_t bound) { return std::string(bound + 1, 'x'); }

// A report with a value in every part, all within bounds.
v1::RankReport GoodReport() {
  v1::RankReport report;
  report.set_rank(3);
  report.set_phase(v1::EXITED);
  report.mutable_join()->set_layout_digest("digest");
  report.mutable_exit()->set_stderr_tail(std::string(limits::kStderrTailBytes, 'x'));
  report.mutable_exit()->mutable_time()->set_seconds(1);
  report.mutable_progress()->set_step(7);
  report.mutable_progress()->set_loss(std::nan(""));  // diverged
  report.mutable_progress()->mutable_time_left()->set_seconds(60);
  v1::StepWindow& window = *report.mutable_progress()->mutable_step_windows()->add_windows();
  window.set_last_step(7);
  window.set_steps(4);
  window.set_compute_seconds(0.1f);
  report.mutable_progress()->add_loss_anomalies()->set_loss(std::nan(""));
  report.mutable_failure()->set_message("failed");
  report.mutable_summary()->add_losses(0.5f);
  report.mutable_checkpoint()->set_dir("/checkpoints");
  report.mutable_silence()->set_seconds(3);
  report.add_warnings("a warning");
  return report;
}

TEST(ReportBoundsTest, KeepsReportsWithinBounds) {
  v1::RankReport report = GoodReport();
  EXPECT_THAT(Clamp(report), IsEmpty());
  EXPECT_EQ(report.SerializeAsString(), GoodReport().SerializeAsString());
}

TEST(ReportBoundsTest, DropsCheckpointStallThatIsNoTime) {
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    v1::RankReport report = GoodReport();
    report.mutable_progress()->set_checkpoint_stall_seconds(wrong);
    const Corrections corrections = Clamp(report);
    ASSERT_THAT(corrections, SizeIs(1));
    EXPECT_EQ(corrections[0].field, "progress.checkpoint_stall_seconds");
    EXPECT_EQ(report.progress().checkpoint_stall_seconds(), 0);
  }
}

TEST(ReportBoundsTest, DropsTimeLeftOfAProgramWithoutEnd) {
  v1::RankReport report = GoodReport();
  report.mutable_progress()->mutable_time_left()->set_seconds(int64_t{1} << 62);
  const Corrections corrections = Clamp(report);
  ASSERT_THAT(corrections, SizeIs(1));
  EXPECT_EQ(corrections[0].field, "progress.time_left");
  EXPECT_EQ(corrections[0].problem,
            "progress.time_left is not from 0 to 315360000 s: 4611686018427387904 s, 0 ns; "
            "dropped");
  EXPECT_FALSE(report.progress().has_time_left());
  EXPECT_EQ(report.progress().step(), 7u);
  EXPECT_THAT(report.warnings(), ElementsAre("a warning", corrections[0].problem));
}

TEST(ReportBoundsTest, DropsStepWindowsThatCannotBeCompared) {
  for (const float seconds : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    v1::RankReport report = GoodReport();
    report.mutable_progress()->mutable_step_windows()->mutable_windows(0)->set_input_seconds(
        seconds);
    const Corrections corrections = Clamp(report);
    ASSERT_THAT(corrections, SizeIs(1));
    EXPECT_EQ(corrections[0].field, "progress.step_windows");
    EXPECT_EQ(report.progress().step_windows().windows_size(), 0);
  }
  v1::RankReport report = GoodReport();
  report.mutable_progress()->mutable_step_windows()->mutable_windows(0)->clear_steps();
  EXPECT_THAT(Clamp(report), SizeIs(1));
}

TEST(ReportBoundsTest, KeepsTheFirstStepWindowsAndLossAnomalies) {
  v1::RankReport report = GoodReport();
  v1::StepWindows& windows = *report.mutable_progress()->mutable_step_windows();
  for (int i = 0; i < 1000; ++i) {
    *windows.add_windows() = windows.windows(0);
    report.mutable_progress()->add_loss_anomalies()->set_step(uint64_t{1} << 63);
  }
  EXPECT_FALSE(Clamp(report).empty());
  EXPECT_EQ(windows.windows_size(), limits::kStepWindows);
  EXPECT_EQ(report.progress().loss_anomalies_size(), limits::kLossAnomalies);
  EXPECT_EQ(report.progress().loss_anomalies(1).step(),
            static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
}

TEST(ReportBoundsTest, WarnsOnceAboutAField) {
  v1::RankReport report;
  for (int64_t day = 1; day < 4; ++day) {
    report.mutable_progress()->mutable_time_left()->set_seconds(-86400 * day);
    EXPECT_THAT(Clamp(report), SizeIs(1));
  }
  EXPECT_THAT(report.warnings(), SizeIs(1));
}

TEST(ReportBoundsTest, TruncatesTextsAtCharacterBoundaries) {
  v1::RankReport report;
  std::string umlauts = "x";
  while (umlauts.size() <= limits::kReportedTextBytes) umlauts += "ü";
  for (v1::FailureReport* failure :
       {report.mutable_failure(), report.mutable_exit()->mutable_failure()}) {
    failure->set_message(umlauts);
    failure->set_phase(Beyond(limits::kLabelBytes));
  }
  report.mutable_exit()->set_stderr_tail("begin" + std::string(limits::kStderrTailBytes, 'x') +
                                         "end");
  report.mutable_progress()->set_phase(Beyond(limits::kLabelBytes));
  report.mutable_progress()->mutable_precision()->set_dtype(Beyond(limits::kLabelBytes));
  report.mutable_checkpoint()->set_dir(Beyond(limits::kReportedTextBytes));
  report.mutable_checkpoint()->set_node(Beyond(limits::kLabelBytes));
  report.mutable_checkpoint()->set_failure(Beyond(limits::kReportedTextBytes));
  report.mutable_checkpoint()->set_name(Beyond(limits::kLabelBytes));
  report.mutable_checkpoint()->set_best_name(Beyond(limits::kLabelBytes));
  report.mutable_summary()->set_weights_digest(Beyond(limits::kLabelBytes));
  report.mutable_join()->set_layout_digest(Beyond(limits::kLabelBytes));
  report.mutable_join()->add_fingerprint()->set_value(Beyond(limits::kLabelBytes));
  report.mutable_lost_output()->set_reason(Beyond(limits::kLabelBytes));
  EXPECT_THAT(Clamp(report), SizeIs(16));
  EXPECT_EQ(report.failure().message(), umlauts.substr(0, limits::kReportedTextBytes - 1));
  EXPECT_EQ(report.exit().failure().message(), report.failure().message());
  EXPECT_EQ(report.failure().phase().size(), limits::kLabelBytes);
  EXPECT_EQ(report.exit().stderr_tail().size(), limits::kStderrTailBytes);
  EXPECT_THAT(report.exit().stderr_tail(), ::testing::EndsWith("xend"));
  EXPECT_EQ(report.progress().phase().size(), limits::kLabelBytes);
  EXPECT_EQ(report.progress().precision().dtype().size(), limits::kLabelBytes);
  EXPECT_EQ(report.checkpoint().dir().size(), limits::kReportedTextBytes);
  EXPECT_EQ(report.checkpoint().node().size(), limits::kLabelBytes);
  EXPECT_EQ(report.checkpoint().failure().size(), limits::kReportedTextBytes);
  EXPECT_EQ(report.checkpoint().name().size(), limits::kLabelBytes);
  EXPECT_EQ(report.checkpoint().best_name().size(), limits::kLabelBytes);
  EXPECT_EQ(report.summary().weights_digest().size(), limits::kLabelBytes);
  EXPECT_EQ(report.join().layout_digest().size(), limits::kLabelBytes);
  EXPECT_EQ(report.join().fingerprint(0).value().size(), limits::kLabelBytes);
  EXPECT_EQ(report.lost_output().reason().size(), limits::kLabelBytes);
  EXPECT_THAT(Clamp(report), IsEmpty());
}

TEST(ReportBoundsTest, TruncatesLists) {
  v1::RankReport report;
  for (size_t i = 0; i <= limits::kFingerprintEntries; ++i) {
    report.mutable_join()->add_fingerprint()->set_name("name");
  }
  v1::TrainSummary& summary = *report.mutable_summary();
  for (size_t i = 0; i <= limits::kRecordedLosses; ++i) summary.add_losses(1);
  for (size_t i = 0; i <= limits::kRecordedEvaluations; ++i) summary.add_evaluations();
  for (int i = 0; i <= limits::kRecordedDevices; ++i) summary.add_devices();
  for (int i = 0; i <= limits::kRecordedDevices; ++i) summary.add_stages();
  for (int i = 0; i <= limits::kStepParts; ++i) summary.add_parts();
  EXPECT_THAT(Clamp(report), SizeIs(6));
  EXPECT_EQ(report.join().fingerprint_size(), static_cast<int>(limits::kFingerprintEntries));
  EXPECT_EQ(summary.losses_size(), static_cast<int>(limits::kRecordedLosses));
  EXPECT_EQ(summary.evaluations_size(), static_cast<int>(limits::kRecordedEvaluations));
  EXPECT_EQ(summary.devices_size(), limits::kRecordedDevices);
  EXPECT_EQ(summary.stages_size(), limits::kRecordedDevices);
  EXPECT_EQ(summary.parts_size(), limits::kStepParts);
}

TEST(ReportBoundsTest, DropsInvalidTimes) {
  v1::RankReport report;
  report.mutable_exit()->mutable_time()->set_seconds(int64_t{1} << 62);
  report.mutable_progress()->mutable_first_step_time()->set_nanos(-1);
  report.mutable_progress()->mutable_time_left()->set_seconds(-1);
  report.mutable_summary()->mutable_first_step_time()->set_seconds(int64_t{1} << 62);
  report.mutable_silence()->set_nanos(-5);
  EXPECT_THAT(Clamp(report), SizeIs(5));
  EXPECT_FALSE(report.exit().has_time());
  EXPECT_FALSE(report.progress().has_first_step_time());
  EXPECT_FALSE(report.progress().has_time_left());
  EXPECT_FALSE(report.summary().has_first_step_time());
  EXPECT_FALSE(report.has_silence());
}

TEST(ReportBoundsTest, CorrectsNumbers) {
  v1::RankReport report;
  report.set_phase(static_cast<v1::RankPhase>(77));
  report.mutable_exit()->set_exit_code(-3);
  report.mutable_exit()->set_signal(std::numeric_limits<int>::max());
  report.mutable_failure()->set_code(1234);
  v1::Progress& progress = *report.mutable_progress();
  progress.set_step(std::numeric_limits<uint64_t>::max());
  progress.set_epoch(HUGE_VAL);
  progress.set_images_per_second(-1);
  progress.set_test_accuracy(std::nan(""));
  progress.set_loss(-HUGE_VAL);
  EXPECT_THAT(Clamp(report), SizeIs(8));
  EXPECT_EQ(report.phase(), v1::RANK_PHASE_UNSPECIFIED);
  // A rank that failed in some way has failed.
  EXPECT_EQ(report.exit().exit_code(), 255);
  EXPECT_EQ(report.exit().signal(), 64);
  EXPECT_EQ(report.failure().code(), static_cast<int>(absl::StatusCode::kUnknown));
  EXPECT_EQ(progress.step(), static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(progress.epoch(), 0);
  EXPECT_EQ(progress.images_per_second(), 0);
  EXPECT_EQ(progress.test_accuracy(), 0);
  EXPECT_EQ(progress.loss(), -HUGE_VAL);
}

TEST(ReportBoundsTest, BoundsWarnings) {
  v1::RankReport report;
  EXPECT_FALSE(AddWarning("", report));
  EXPECT_TRUE(AddWarning("one", report));
  EXPECT_FALSE(AddWarning("one", report));
  EXPECT_TRUE(AddWarning(std::string(limits::kWarningBytes - 1, 'x') + "ü", report));
  EXPECT_EQ(report.warnings(1).size(), limits::kWarningBytes - 1);
  for (int i = 2; i < limits::kWarningsPerRank; ++i)
    EXPECT_TRUE(AddWarning(std::to_string(i), report));
  EXPECT_FALSE(AddWarning("one more", report));
  report.add_warnings(Beyond(limits::kWarningBytes));
  report.add_warnings(Beyond(limits::kWarningBytes));
  EXPECT_THAT(Clamp(report), SizeIs(1));
  EXPECT_THAT(report.warnings(), SizeIs(limits::kWarningsPerRank));
}

TEST(ReportBoundsTest, ChecksSingleFields) {
  EXPECT_TRUE(CheckLength("text", 3, 3).ok());
  EXPECT_THAT(std::string(CheckLength("text", 4, 3).message()),
              HasSubstr("text is 4 bytes long; the limit is 3"));
  EXPECT_THAT(std::string(CheckCount("list", 4, 3).message()),
              HasSubstr("list: 4 entries; the limit is 3"));
}

}  // namespace
}  // namespace muster
