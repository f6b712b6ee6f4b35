#include "cli/text/job_text.h"

#include "cli/text/node_text.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

v1::Job RunningJob() {
  v1::Job job;
  job.set_job_id("fashion-mnist-x7k2");
  job.set_state(v1::RUNNING);
  job.set_generation(1);
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_min(2);
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_max(2);
  job.mutable_spec()->mutable_resources()->set_ranks_per_node(1);
  job.mutable_spec()->mutable_train()->set_epochs(5);
  *job.mutable_submit_time() = ToProto(kNow - absl::Seconds(83));
  v1::Progress& progress = *job.mutable_progress();
  progress.set_phase("training");
  progress.set_step(235);
  progress.set_total_steps(1175);
  progress.set_epoch(1.0);
  progress.set_loss(0.42134);
  progress.set_images_per_second(41234.4);
  *progress.mutable_time_left() = ToProto(absl::Milliseconds(112900));
  return job;
}

v1::FirstFailure Failure() {
  v1::FirstFailure failure;
  failure.set_generation(1);
  failure.set_reason("RankFailed");
  failure.set_rank(0);
  failure.set_node("node-2");
  failure.mutable_exit()->set_exit_code(7);
  failure.mutable_exit()->set_stderr_tail("Traceback\n\x1b[31mboom\n");
  return failure;
}

TEST(ProgressTextTest, OneLine) {
  EXPECT_EQ(ProgressText(RunningJob()),
            "step 235/1175  epoch 1.00/5  loss 0.4213  41,234 images/s  1m52s left");
  v1::Job command;
  command.mutable_progress()->set_step(3);
  EXPECT_EQ(ProgressText(command), "step 3");
  command.mutable_progress()->set_loss(0.5);
  EXPECT_EQ(ProgressText(command), "step 3  loss 0.5000");
  v1::Job evaluating = RunningJob();
  evaluating.mutable_progress()->set_phase("evaluating");
  EXPECT_THAT(ProgressText(evaluating), testing::StartsWith("evaluating  step 235/1175"));
  EXPECT_THAT(ProgressText(evaluating), testing::Not(HasSubstr(" left")));
  evaluating.mutable_progress()->set_phase_progress(3200);
  evaluating.mutable_progress()->set_phase_total(10'000);
  evaluating.mutable_progress()->set_phase_unit("images");
  EXPECT_THAT(ProgressText(evaluating),
              testing::StartsWith("evaluating: 3,200 of 10,000 images  step 235/1175"));
  EXPECT_THAT(ProgressText(evaluating), testing::EndsWith("1m52s left"));
  v1::Job limited = RunningJob();
  limited.mutable_spec()->mutable_train()->set_max_steps(301);
  limited.mutable_progress()->set_total_steps(301);
  EXPECT_THAT(ProgressText(limited), testing::StartsWith("step 235/301  epoch 1.00/1.28  "));
  v1::Job loading = RunningJob();
  loading.mutable_progress()->Clear();
  loading.mutable_progress()->set_phase("loading-data");
  EXPECT_EQ(ProgressText(loading), "loading-data");
  loading.mutable_progress()->set_phase_progress(120'000);
  loading.mutable_progress()->set_phase_unit("files indexed");
  EXPECT_EQ(ProgressText(loading), "loading-data: 120,000 files indexed");
  EXPECT_EQ(ProgressText(v1::Job()), "");
  v1::Job scaled = RunningJob();
  scaled.mutable_progress()->set_loss_scale(32768);
  scaled.mutable_progress()->set_skipped_steps(1);
  EXPECT_THAT(ProgressText(scaled),
              HasSubstr("loss 0.4213  loss scale 32768 (1 step skipped)  41,234 images/s"));
}

TEST(FailureTextTest, NamesRankNodeAndExit) {
  v1::FirstFailure failure = Failure();
  EXPECT_EQ(FailureText(failure), "RankFailed: rank 0 on node-2 exited with code 7");
  EXPECT_EQ(FailureDetailText(failure),
            "  last lines of its output:\n"
            "    Traceback\n"
            "    \\x1b[31mboom\n");
  failure.mutable_exit()->set_signal(9);
  EXPECT_THAT(FailureText(failure), HasSubstr("killed by SIGKILL"));
  failure.mutable_exit()->set_out_of_memory(true);
  EXPECT_THAT(FailureText(failure), HasSubstr("killed by the OOM killer"));
  v1::FirstFailure lost;
  lost.set_reason("NodeLost");
  lost.set_node("node-1");
  EXPECT_EQ(FailureText(lost), "NodeLost: node node-1");
  lost.set_message("node-1 was lost: its lease ended");
  EXPECT_EQ(FailureText(lost), "NodeLost: node-1 was lost: its lease ended");
  EXPECT_EQ(FailureDetailText(lost), "");
}

TEST(FailureTextTest, IncludesTheErrorThatTheRankReported) {
  v1::FirstFailure failure = Failure();
  failure.mutable_exit()->mutable_failure()->set_phase("loading-data");
  failure.mutable_exit()->mutable_failure()->set_message("/no/such/data: no such directory");
  EXPECT_THAT(FailureDetailText(failure),
              HasSubstr("error reported by the rank, in loading-data: /no/such/data"));
}

TEST(FailureTextTest, LeavesOutStderrThatOnlyRepeatsTheError) {
  v1::FirstFailure failure = Failure();
  failure.set_message("rank 0 exited with code 66: /no/such/data: no such directory");
  failure.mutable_exit()->mutable_failure()->set_message("/no/such/data: no such directory");
  failure.mutable_exit()->set_stderr_tail(
      "I1 loader threads: 1\nE1 loading-data: /no/such/data: no such directory\n");
  EXPECT_EQ(FailureDetailText(failure), "");
  failure.mutable_exit()->set_stderr_tail("in open\nOSError: /no/such/data: no such directory\n");
  EXPECT_EQ(
      FailureDetailText(failure),
      "  last lines of its output:\n    in open\n    OSError: /no/such/data: no such directory\n");
}

TEST(WaitsTextTest, NamesMissingRanksAndNodes) {
  v1::Job job;
  EXPECT_EQ(WaitsText(job), "");
  v1::Wait& wait = *job.add_waits();
  wait.set_what("resources");
  for (int i = 0; i < 5; ++i) {
    v1::WaitedFor& who = *wait.add_missing();
    who.set_node("n" + std::to_string(i));
    who.set_reason("0 of 1 slots free");
  }
  EXPECT_EQ(WaitsText(job),
            "resources (n0: 0 of 1 slots free; n1: 0 of 1 slots free; n2: 0 of 1 slots free; "
            "2 more)");
  job.clear_waits();
  v1::Wait& rendezvous = *job.add_waits();
  rendezvous.set_what("rendezvous");
  rendezvous.add_missing()->set_rank(0);
  EXPECT_EQ(WaitsText(job), "rendezvous (rank 0)");
}

TEST(JobTableTest, PrintsNarrowAndWideColumns) {
  v1::Job job = RunningJob();
  job.set_message("two\nlines");
  EXPECT_EQ(JobTable({job}, {}, /*wide=*/false, kNow),
            "JOB                 STATE    NODES  RANKS  STEP      RESTARTS  DURATION  AGE\n"
            "fashion-mnist-x7k2  RUNNING  2      2      235/1175  0         -         1m23s\n");
  job.set_owner("ada");
  const std::string wide = JobTable({job}, {}, /*wide=*/true, kNow);
  EXPECT_THAT(wide, HasSubstr("two lines\n"));
  EXPECT_THAT(wide, HasSubstr("AGE    OWNER  PRIORITY"));
  EXPECT_THAT(wide, HasSubstr("1m23s  ada    0"));
}

TEST(JobTableTest, MarksHungJobs) {
  v1::Job job;
  job.set_job_id("train-x7k2");
  job.mutable_hang();
  job.set_state(v1::RUNNING);
  EXPECT_THAT(JobTable({job}, {}, /*wide=*/false, kNow), HasSubstr("\ntrain-x7k2  RUNNING,HUNG  "));
  job.set_state(v1::CANCELLED);
  EXPECT_THAT(JobTable({job}, {}, /*wide=*/false, kNow), HasSubstr("\ntrain-x7k2  CANCELLED  "));
}

TEST(JobTableTest, DurationEndsWithTheJob) {
  v1::Job job = RunningJob();
  *job.mutable_start_time() = ToProto(kNow - absl::Seconds(80));
  EXPECT_EQ(DurationText(job, kNow), "1m20s");
  *job.mutable_finish_time() = ToProto(kNow - absl::Seconds(60));
  EXPECT_EQ(DurationText(job, kNow), "20s");
  EXPECT_EQ(DurationText(job, kNow + absl::Hours(1)), "20s");
}

TEST(RankTableTest, PrintsOneRowPerRank) {
  v1::Job job;
  v1::RankStatus& rank = *job.add_ranks();
  rank.set_node("node-1");
  rank.set_phase(v1::EXITED);
  rank.add_slots(0);
  rank.add_slots(1);
  rank.mutable_exit()->set_signal(11);
  EXPECT_EQ(RankTable(job),
            "RANK  NODE    LOCAL  SLOTS  PHASE   PID  STEP  SEEN  EXIT\n"
            "0     node-1  0      0,1    EXITED  -    -     -     killed by SIGSEGV\n");
}

TEST(SummaryTextTest, OneLine) {
  v1::TrainSummary summary;
  summary.set_steps(1175);
  summary.set_epochs(5);
  summary.set_images_per_second(41234.2);
  summary.set_seconds_to_first_step(0.31);
  summary.set_final_loss(0.2134);
  summary.set_peak_memory_bytes(210 << 20);
  EXPECT_EQ(SummaryText(summary),
            "1,175 steps, 5 epochs, 41,234 images/s, first step after 0.31 s, final loss 0.2134, "
            "peak memory 210 MiB");
  summary.set_test_loss(0.25);
  summary.set_stall_seconds(1.5);
  EXPECT_THAT(SummaryText(summary),
              HasSubstr("final loss 0.2134, test loss 0.2500, waited 1.50 s for data, peak"));
  summary.set_median_step_seconds(0.1);
  summary.set_data_wait_seconds(0.009);
  EXPECT_THAT(SummaryText(summary), Not(HasSubstr("the loader limits")));
  summary.set_data_wait_seconds(0.011);
  EXPECT_THAT(
      SummaryText(summary),
      HasSubstr("waited 1.50 s for data (the loader limits: raise train.loader.threads), "));
}

TEST(SummaryTextTest, NamesStepOfACompleteTraining) {
  v1::TrainSummary summary;
  summary.set_steps(80);
  summary.set_already_complete(true);
  EXPECT_EQ(SummaryText(summary), "already complete at step 80; nothing was trained");
}

TEST(SummaryTextTest, DescribesStepTimeAndPrecision) {
  v1::TrainSummary summary;
  summary.set_median_step_seconds(0.2);
  summary.set_kernel_seconds(0.18);
  summary.set_exposed_communication_seconds(0.01);
  summary.set_precision("O0 float32");
  EXPECT_THAT(SummaryText(summary),
              EndsWith(", step 200.0 ms (90 % in kernels, 5 % waiting for other ranks)"));
  summary.set_precision("O2 float16, gradients float16");
  summary.set_device("cpu");
  EXPECT_THAT(SummaryText(summary), EndsWith(", O2 float16, gradients float16"));
  summary.set_device("cuda:0 NVIDIA H200");
  EXPECT_THAT(SummaryText(summary), EndsWith(" float16, on cuda:0 NVIDIA H200"));
  summary.set_device("cpu");
  summary.set_loss_scale(16777216);
  EXPECT_THAT(SummaryText(summary),
              EndsWith(" ranks), O2 float16, gradients float16, loss scale 16777216"));
  summary.set_skipped_steps(3);
  EXPECT_THAT(SummaryText(summary), EndsWith(", loss scale 16777216 (3 steps skipped)"));
}

TEST(SummaryTextTest, DescribesStepsOfAGpu) {
  v1::TrainSummary summary;
  summary.set_median_step_seconds(0.0825);
  summary.set_queue_seconds(0.00009);
  EXPECT_THAT(SummaryText(summary), EndsWith(", step 82.5 ms (queued in 0.09 ms)"));
  summary.set_differing_replicas(2);
  EXPECT_THAT(SummaryText(summary),
              EndsWith(" ms); WARNING: 2 ranks ended with weights that differ from rank 0's"));
}

TEST(SummaryTextTest, DescribesStagesOfAPipeline) {
  v1::TrainSummary summary;
  summary.set_bubble_ratio(0.204);
  for (const auto& [layer, seconds] : {std::pair("conv1", 0.004), {"layer3.0.conv1", 0.0038}}) {
    v1::StageUse& stage = *summary.add_stages();
    stage.set_first_layer(layer);
    stage.set_forward_seconds(seconds);
    stage.set_backward_seconds(2 * seconds);
  }
  EXPECT_THAT(
      SummaryText(summary),
      EndsWith(
          ", 2 stages from conv1, layer3.0.conv1: 12.0, 11.4 ms per micro-batch, bubble 20 %"));
}

TEST(SummaryTextTest, DescribesPhasesOfADpStep) {
  v1::TrainSummary summary;
  summary.set_strategy("dp");
  for (const auto& [name, seconds] :
       {std::pair("forward", 0.03), {"gather", 0.0001}, {"backward", 0.07}}) {
    v1::StepPart& part = *summary.add_parts();
    part.set_name(name);
    part.set_seconds(seconds);
  }
  EXPECT_THAT(SummaryText(summary), EndsWith(", dp: forward 30 %, backward 70 %"));
}

TEST(NodeTableTest, PrintsStateAndFreeSlots) {
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::READY);
  node.set_cordoned(true);
  node.set_address("10.0.0.1");
  node.add_slots()->set_job_id("a-1");
  node.add_slots();
  *node.mutable_heartbeat_age() = ToProto(absl::Milliseconds(400));
  EXPECT_EQ(NodeTable({node}, /*wide=*/false),
            "NODE    STATE           SLOTS  FREE  ADDRESS   HEARTBEAT\n"
            "node-1  READY,CORDONED  2      1     10.0.0.1  0s ago\n");
  node.set_cordon_reason("ECC errors");
  EXPECT_THAT(NodeTable({node}, /*wide=*/true), HasSubstr("a-1   -         ECC errors\n"));
  EXPECT_EQ(NodeSentence(node), "node-1 is cordoned (ECC errors); 1 of 2 slots in use by a-1");
  node.set_cordoned(false);
  node.clear_cordon_reason();
  node.mutable_slots(0)->clear_job_id();
  EXPECT_EQ(NodeSentence(node), "node-1 is schedulable; no slots in use");
}

TEST(NodeTableTest, ShowsFailedLaunches) {
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::READY);
  node.set_failed_launches(1);
  EXPECT_THAT(NodeTable({node}, /*wide=*/true), HasSubstr("1 failed in a row"));
  EXPECT_THAT(NodeTable({node}, /*wide=*/false), Not(HasSubstr("COOLING_DOWN")));
  node.set_failed_launches(2);
  *node.mutable_cool_down() = ToProto(absl::Seconds(28));
  EXPECT_THAT(NodeTable({node}, /*wide=*/false), HasSubstr("READY,COOLING_DOWN"));
  EXPECT_THAT(NodeTable({node}, /*wide=*/true), HasSubstr("2 failed in a row; not used for 28s"));
  EXPECT_THAT(NodeDescription(node), HasSubstr("2 failed in a row; not used for 28s\n"));
}

TEST(JobTableTest, ShowsJobsThatDoNotFit) {
  v1::Job job = RunningJob();
  job.set_state(v1::QUEUED);
  job.set_message("waiting in the queue for resources");
  job.set_unplaceable("needs 5 nodes");
  EXPECT_THAT(JobTable({job}, {}, /*wide=*/false, kNow), HasSubstr("QUEUED,UNPLACEABLE"));
  EXPECT_THAT(JobTable({job}, {}, /*wide=*/true, kNow), HasSubstr("needs 5 nodes"));
}

TEST(RankTableTest, ShowsUnkillableRanks) {
  v1::Job job = RunningJob();
  v1::RankStatus& rank = *job.add_ranks();
  rank.set_phase(v1::EXITED);
  rank.set_unkillable(true);
  EXPECT_THAT(RankTable(job, /*wide=*/false), HasSubstr("outlived SIGKILL"));
}

TEST(NodeTableTest, LostNodesHaveNoFreeSlots) {
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::LOST);
  node.add_slots();
  EXPECT_THAT(NodeTable({node}, /*wide=*/false), HasSubstr("node-1  LOST   1      0 "));
  EXPECT_THAT(NodeDescription(node), HasSubstr("Slots:       1, 0 free\n"));
}

TEST(NodeTableTest, Description) {
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::READY);
  node.set_cordon_reason("a\x1b[2J");
  node.add_slots()->set_kind("cpu");
  const std::string text = NodeDescription(node);
  EXPECT_THAT(text, HasSubstr("State:       READY\n"));
  EXPECT_THAT(text, HasSubstr("Cordoned:    a\\x1b[2J\n"));
  EXPECT_THAT(text, HasSubstr("Slots:       1, 1 free\n"));
  EXPECT_THAT(text, HasSubstr("SLOT  KIND  UUID  JOB  GENERATION  RANK  UNAVAILABLE\n"
                              "0     cpu   -     -    -           -     -\n"));
  EXPECT_THAT(text, Not(HasSubstr("NUMA")));
}

TEST(NodeTableTest, PrintsGpus) {
  v1::Node node;
  node.set_name("node-1");
  v1::Slot& slot = *node.add_slots();
  slot.set_kind("gpu");
  slot.set_uuid("GPU-a");
  slot.set_unavailable("Xid 79, GPU has fallen off the bus");
  v1::Device& device = *slot.mutable_device();
  device.set_index(3);
  device.set_name("H200");
  device.set_memory_bytes(uint64_t{2} << 30);
  device.set_pci_bus_id("0000:1b:00.0");
  device.set_numa_node(1);
  device.set_cpus("0-7");
  v1::DeviceLink& near = *device.add_links();
  near.set_index(1);
  near.set_nvlinks(18);
  near.set_path("system");
  v1::DeviceLink& far = *device.add_links();
  far.set_index(2);
  far.set_path("host bridge");
  device.set_nvswitch_links(2);
  node.add_slots()->set_kind("cpu");
  const std::string text = NodeDescription(node);
  EXPECT_THAT(text, HasSubstr("Slots:       2, 1 free\n"));
  EXPECT_THAT(text, HasSubstr("Xid 79, GPU has fallen off the bus\n"));
  EXPECT_THAT(text, HasSubstr("GPU  SLOT  NAME  MEMORY   PCI           NUMA  CPUS  LINKS\n"
                              "3    0     H200  2.0 GiB  0000:1b:00.0  1     0-7   1: 18 NVLinks; "
                              "2: host bridge; 2 NVLinks to NVSwitches\n"));
  EXPECT_THAT(NodeTable({node}, /*wide=*/true), HasSubstr("1 gpu, 1 cpu"));
  EXPECT_EQ(NodeSentence(node), "node-1 is schedulable; no slots in use");
}

TEST(RankTableTest, LabelsConsequences) {
  v1::Job job;
  job.set_generation(1);
  job.mutable_first_failure()->set_generation(1);
  job.mutable_first_failure()->set_rank(1);
  for (uint32_t id = 0; id < 4; ++id) {
    v1::RankStatus& rank = *job.add_ranks();
    rank.set_rank(id);
    rank.mutable_exit()->set_exit_code(id == 3 ? 0 : 7);
  }
  job.mutable_ranks(0)->mutable_exit()->set_stopped_by_worker(true);
  const std::string table = RankTable(job);
  EXPECT_THAT(table, HasSubstr("exited with code 7, stopped\n"));
  EXPECT_THAT(table, HasSubstr("exited with code 7, the first failure\n"));
  EXPECT_THAT(table, HasSubstr("exited with code 7, a consequence\n"));
  EXPECT_THAT(table, HasSubstr("exited with code 0\n"));
  EXPECT_EQ(ConsequencesText(job),
            "1 other rank was stopped because of it; 1 other rank failed as a consequence.");
}

TEST(NodeTextTest, ShowsSelfTestsAndWhenNodesReturn) {
  v1::Node node;
  node.set_name("gpu-3");
  EXPECT_FALSE(SelfTestSucceeded(node));
  EXPECT_EQ(SelfTestSentence(node), "gpu-3: no self-test yet");
  v1::SelfTest& test = *node.mutable_self_test();
  test.add_checks()->set_name("disk");
  test.add_checks()->set_name("memory");
  *test.mutable_age() = ToProto(absl::Minutes(5));
  *test.mutable_duration() = ToProto(absl::Milliseconds(310));
  EXPECT_TRUE(SelfTestSucceeded(node));
  EXPECT_EQ(SelfTestSentence(node), "gpu-3: self-test succeeded 5m ago, in 0.31 s: disk, memory");
  test.mutable_checks(0)->set_failure("/data: no space left on device");
  EXPECT_FALSE(SelfTestSucceeded(node));
  node.set_cordoned(true);
  node.set_cordoned_by_health(true);
  node.set_failed_launches(3);
  node.set_launch_failure("cannot create /data/jobs/a: no space left on device");
  *node.mutable_drain_deadline() = ToProto(absl::Seconds(90));
  const std::string text = NodeDescription(node);
  EXPECT_THAT(text, HasSubstr("failed 5m ago, in 0.31 s: disk: /data: no space left on device\n"));
  EXPECT_THAT(text, HasSubstr("when a self-test succeeds: muster node test gpu-3\n"));
  EXPECT_THAT(text, HasSubstr("3 failed in a row; last: cannot create /data/jobs/a"));
  EXPECT_THAT(text, HasSubstr("ranks are killed in 1m30s\n"));
  test.set_running(true);
  EXPECT_FALSE(SelfTestSucceeded(node));
}

}  // namespace
}  // namespace muster::cli
