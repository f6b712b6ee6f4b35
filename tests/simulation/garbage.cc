#include "tests/simulation/garbage.h"

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace muster::simulation {
namespace {

std::string Long(size_t bytes) { return std::string(bytes, 'x'); }

double WrongNumber(Random& random) {
  constexpr double kWrong[] = {-1, std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity()};
  return kWrong[random.Below(std::size(kWrong))];
}

// Each puts something out of bounds into the report, and into `used` what remains of it. Returns
// false if the report has no place for it.
using RankSpoiler = bool (*)(v1::RankReport& report, v1::RankReport& used, Random& random);
constexpr RankSpoiler kRankSpoilers[] = {
    [](v1::RankReport& report, v1::RankReport&, Random& random) {
      // A report seen in practice: a script had written total_steps=9223372036854775807.
      if (!report.has_progress()) return false;
      report.mutable_progress()->mutable_time_left()->set_seconds(
          random.Chance(0.5) ? std::numeric_limits<int64_t>::max() : -1);
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random& random) {
      if (!report.has_progress()) return false;
      report.mutable_progress()->set_checkpoint_stall_seconds(-1);
      used.mutable_progress()->clear_checkpoint_stall_seconds();
      report.mutable_progress()->set_learning_rate(WrongNumber(random));
      report.mutable_progress()->set_images_per_second(WrongNumber(random));
      return true;
    },
    [](v1::RankReport& report, v1::RankReport&, Random&) {
      if (!report.has_progress()) return false;
      report.mutable_progress()->mutable_first_step_time()->set_nanos(-5);
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random&) {
      if (!report.has_progress()) return false;
      report.mutable_progress()->set_total_steps(std::numeric_limits<uint64_t>::max());
      used.mutable_progress()->set_total_steps(std::numeric_limits<int64_t>::max());
      return true;
    },
    [](v1::RankReport& report, v1::RankReport&, Random&) {
      report.mutable_silence()->set_nanos(2'000'000'000);
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random& random) {
      report.set_phase(static_cast<v1::RankPhase>(50 + random.Below(100)));
      used.clear_phase();
      return true;
    },
    [](v1::RankReport& report, v1::RankReport&, Random&) {
      for (int i = 0; i < 3 * limits::kWarningsPerRank; ++i) {
        report.add_warnings(absl::StrCat(i, Long(2 * limits::kWarningBytes)));
      }
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random&) {
      if (!report.has_exit()) return false;
      report.mutable_exit()->mutable_time()->set_seconds(std::numeric_limits<int64_t>::min());
      report.mutable_exit()->set_stderr_tail(Long(3 * limits::kStderrTailBytes));
      used.mutable_exit()->set_stderr_tail(Long(limits::kStderrTailBytes));
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random&) {
      if (report.exit().signal() == 0) return false;
      report.mutable_exit()->set_signal(1000);
      used.mutable_exit()->set_signal(64);
      return true;
    },
    [](v1::RankReport& report, v1::RankReport& used, Random&) {
      if (!report.has_failure()) return false;
      report.mutable_failure()->set_message(Long(3 * limits::kReportedTextBytes));
      used.mutable_failure()->set_message(Long(limits::kReportedTextBytes));
      report.mutable_failure()->set_code(-7);
      used.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kUnknown));
      return true;
    },
};

void AddStrangeGeneration(v1::GenerationReport& report, Random& random) {
  report.add_ranks()->set_phase(v1::STARTED);
  if (random.Chance(0.5)) {
    report.set_job_id(random.Chance(0.5) ? "" : Long(1000));
    report.set_generation(random.Next());
    return;
  }
  // A job that probably exists.
  constexpr uint64_t kWrong[] = {0, limits::kLargestGeneration + 1,
                                 std::numeric_limits<uint64_t>::max()};
  report.set_job_id(absl::StrCat(1 + random.Below(20), "-job"));
  report.set_generation(kWrong[random.Below(std::size(kWrong))]);
}

}  // namespace

void Spoil(v1::Hello& hello, Random& random) {
  switch (random.Below(5)) {
    case 0:
      (*hello.mutable_labels())[Long(2 * limits::kLabelBytes)] = "x";
      break;
    case 1:
      *hello.add_slots() = hello.slots(0);
      break;
    case 2:
      hello.set_metrics_address(Long(2 * limits::kLabelBytes));
      break;
    case 3:
      if (!hello.inventory().empty()) {
        *hello.add_inventory() = hello.inventory(0);
        break;
      }
      [[fallthrough]];
    default:
      AddStrangeGeneration(*hello.add_inventory(), random);
  }
}

bool Spoil(v1::WorkerMessage& message, v1::WorkerMessage& used, Random& random) {
  if (message.has_heartbeat()) {
    AddStrangeGeneration(*message.mutable_heartbeat()->add_progress(), random);
    return true;
  }
  if (!message.has_report()) return false;
  if (random.Chance(0.1)) {
    // A rank of another node, or of no node.
    v1::RankReport& rank = *message.mutable_report()->add_ranks();
    rank.set_rank(static_cast<uint32_t>(1000 + random.Below(1u << 30)));
    rank.set_phase(v1::EXITED);
    rank.mutable_exit()->set_exit_code(3);
    return true;
  }
  const RankSpoiler spoil = kRankSpoilers[random.Below(std::size(kRankSpoilers))];
  return spoil(*message.mutable_report()->mutable_ranks(0),
               *used.mutable_report()->mutable_ranks(0), random);
}

v1::WorkerMessage MakeGarbage(Random& random) {
  v1::WorkerMessage message;
  switch (random.Below(9)) {
    case 0:
      message.mutable_hello()->set_node_name("other");
      break;
    case 1:
      AddStrangeGeneration(*message.mutable_report(), random);
      break;
    case 2:
      message.mutable_put_key()->set_job_id("1-job");
      message.mutable_put_key()->set_generation(1);
      message.mutable_put_key()->set_value("value without key");
      break;
    case 3:
      message.mutable_get_key()->set_job_id("1-job");
      message.mutable_get_key()->set_key(Long(2 * limits::kKeyBytes));
      break;
    case 4:
      message.mutable_arrive_barrier()->set_job_id(Long(1000));
      message.mutable_arrive_barrier()->mutable_barrier()->set_group("world");
      break;
    case 5:
      message.mutable_unknown_generation()->set_job_id("not a job");
      break;
    case 6:
      message.mutable_lease_question()->set_node_name("not a node");
      break;
    case 7:
      message.mutable_report()->set_job_id("job-of-nobody");
      message.mutable_report()->set_generation(1 + random.Below(3));
      message.mutable_report()->add_ranks()->set_phase(v1::STARTED);
      break;
    default:
      break;  // a kind that this version does not know
  }
  return message;
}

}  // namespace muster::simulation
