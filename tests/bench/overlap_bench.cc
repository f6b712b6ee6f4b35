// Measures how much of the gradient all-reduce is hidden behind backward.
//
//   bazel run //tests/bench:overlap_bench -- --bucket=1MiB:25MiB --bucket=1MiB:4MiB
//
// Ranks are processes with one compute thread each; every step is a real plan's forward, loss and
// backward, with the trainer's HostBucketReducer. Compared over each network:
//
//   all-reduce   all buckets at once, without other work
//   without      a step without communication
//   with         the same step with gradient all-reduce
//   wait         time of that step spent waiting after backward
//   exposed      (with - without) / all-reduce: 0 is hidden entirely, 1 is not at all; from pairs
//   of
//                consecutive steps
//
// The networks: shm; gloo over loopback; and limited, which is gloo with a send rate limit such
// that the all-reduce alone takes as long as backward alone, where overlapping is most valuable.
// Steps of all configurations alternate; figures are medians of the slowest rank. The CPU time of
// the all-reduce cannot be hidden if every core computes.
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "collectives/token_bucket.h"
#include "common/status.h"
#include "common/time/now.h"
#include "kernels/aligned_floats.h"
#include "nlohmann/json.hpp"
#include "spec/units.h"
#include "trainer/graph/plan.h"
#include "trainer/models/model.h"
#include "trainer/strategy/host_bucket_reducer.h"

namespace muster::train {
namespace {

using collectives::Communicator;
using collectives::DataType;
using collectives::ReduceOp;

// Burst of the rate limit as a fraction of the gradients: on a real network some of the ring's
// chunks would wait in kernel buffers, so that no time is lost if the communicator's thread wakes
// up slightly late or is busy reducing.
constexpr double kBurstShare = 1.0 / 32;
constexpr int kWarmupSteps = 2;
constexpr int kCalibrationSteps = 5;
constexpr int kCalibrations = 6;
constexpr double kCalibrated = 0.03;  // maximum relative difference between all-reduce and backward

struct Flags {
  std::string model = "resnet18";
  int64_t image_size = 32;
  uint32_t batch = 128;  // global batch
  uint32_t ranks = 2;
  int steps = 15;
  std::vector<std::string> networks = {"shm", "gloo", "limited"};
  std::vector<std::string> buckets;  // FIRST:REST
  bool json = false;
};

// Times of one result row, in seconds.
struct Times {
  std::vector<double> all_reduce, all_reduce_processor, without, with, backward_without,
      backward_with, wait, extra;
};

struct Configuration {
  std::string network;
  HostBucketReducerOptions options;
  Communicator* communicator = nullptr;
  std::unique_ptr<HostBucketReducer> exchange;
  Times times;
};

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

double CpuTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::StatusOr<HostBucketReducerOptions> ParseBuckets(const std::string& text) {
  const std::vector<std::string> sizes = absl::StrSplit(text, ':');
  if (sizes.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not FIRST:REST; for example 1MiB:25MiB"));
  }
  HostBucketReducerOptions options;
  ASSIGN_OR_RETURN(options.first_bucket_bytes, spec::ParseSize(sizes[0]));
  ASSIGN_OR_RETURN(options.bucket_bytes, spec::ParseSize(sizes[1]));
  return options;
}

// A rank in its process.
class Rank {
 public:
  Rank(const Flags& flags, uint32_t rank, collectives::KeyStore* store)
      : flags_(flags), rank_(rank), store_(store) {}

  absl::Status Run();

 private:
  absl::Status SetUp();
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::string& backend,
                                                        const std::string& name);
  absl::Status MakeConfigurations();
  // Maximum over all ranks.
  absl::StatusOr<double> Largest(double value);
  void Limit(const Configuration& configuration);

  // Both start on all ranks at the same time.
  absl::Status Step(Configuration& configuration, bool communicate, Times& times);
  absl::Status AllReduce(Configuration& configuration, Times& times);
  // Sets rate_.
  absl::Status Calibrate(Configuration& configuration);
  absl::Status Report();

  const Flags& flags_;
  const uint32_t rank_;
  collectives::KeyStore* const store_;
  std::unique_ptr<nn::Plan> plan_;
  uint32_t samples_ = 0;
  kernels::AlignedFloats parameters_, buffers_;
  std::unique_ptr<collectives::TokenBucket> limit_;
  double rate_ = 0;  // send rate of the limited network, bytes per second
  std::unique_ptr<Communicator> control_, shm_, gloo_;
  std::vector<Configuration> configurations_;
};

absl::StatusOr<std::unique_ptr<Communicator>> Rank::Connect(const std::string& backend,
                                                            const std::string& name) {
  collectives::GroupOptions options;
  options.name = name;
  options.id = absl::StrCat("overlap-", getppid(), "-", name);
  options.rank = rank_;
  options.size = flags_.ranks;
  for (uint32_t i = 0; i < flags_.ranks; ++i) options.members.push_back(i);
  options.store = store_;
  options.interface_address = "127.0.0.1";
  options.send_limit = limit_.get();
  return collectives::CreateCommunicator(backend, options);
}

absl::Status Rank::SetUp() {
  v1::ModelSpec model;
  model.set_name(flags_.model);
  ASSIGN_OR_RETURN(const nn::Graph graph,
                   nn::BuildModel(model, {flags_.image_size, flags_.image_size, 1}, 10));
  samples_ = flags_.batch / flags_.ranks;
  nn::CompileOptions options;
  options.max_batch = samples_;
  ASSIGN_OR_RETURN(plan_, nn::Compile(graph, options));
  parameters_ = kernels::MakeAlignedFloats(plan_->parameter_elements());
  buffers_ = kernels::MakeAlignedFloats(plan_->buffer_elements());
  plan_->Bind(parameters_.get(), nullptr, buffers_.get());
  plan_->Initialize(1);
  const size_t pixels = size_t{samples_} * flags_.image_size * flags_.image_size;
  for (size_t i = 0; i < pixels; ++i) {
    plan_->input()[i] = static_cast<float>((i * 2654435761u >> 12) % 1000) / 500 - 1;
  }
  for (uint32_t i = 0; i < samples_; ++i) plan_->labels()[i] = static_cast<int32_t>(i % 10);
  limit_ = std::make_unique<collectives::TokenBucket>(
      0, static_cast<size_t>(kBurstShare * sizeof(float) *
                             static_cast<double>(plan_->parameter_elements())));
  ASSIGN_OR_RETURN(control_, Connect("shm", "control"));
  ASSIGN_OR_RETURN(shm_, Connect("shm", "shm"));
  ASSIGN_OR_RETURN(gloo_, Connect("gloo", "gloo"));
  return MakeConfigurations();
}

absl::Status Rank::MakeConfigurations() {
  for (const std::string& network : flags_.networks) {
    std::vector<HostBucketReducerOptions> buckets;
    for (const std::string& text : flags_.buckets) {
      ASSIGN_OR_RETURN(const HostBucketReducerOptions options, ParseBuckets(text));
      buckets.push_back(options);
    }
    if (buckets.empty()) buckets.emplace_back();
    for (const HostBucketReducerOptions& options : buckets) {
      Configuration& configuration = configurations_.emplace_back();
      configuration.network = network;
      configuration.options = options;
      configuration.communicator = network == "shm" ? shm_.get() : gloo_.get();
      ASSIGN_OR_RETURN(configuration.exchange,
                       HostBucketReducer::Create(configuration.communicator, plan_.get(), options));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Rank::Largest(double value) {
  RETURN_IF_ERROR(
      control_->AllReduce(&value, &value, 1, DataType::kFloat64, ReduceOp::kMax)->Wait());
  return value;
}

void Rank::Limit(const Configuration& configuration) {
  limit_->SetRate(configuration.network == "limited" ? rate_ : 0, SteadyNow());
}

absl::Status Rank::Step(Configuration& configuration, bool communicate, Times& times) {
  HostBucketReducer& exchange = *configuration.exchange;
  Limit(configuration);
  plan_->Bind(parameters_.get(), exchange.gradients(), buffers_.get());
  RETURN_IF_ERROR(control_->Barrier()->Wait());
  const double start = Now();
  plan_->Forward(samples_, /*training=*/true, {});
  const nn::LossResult loss = plan_->Loss(samples_, 0, 1.0f / static_cast<float>(flags_.batch));
  const double backward_start = Now();
  if (!communicate) {
    plan_->Backward(samples_, nullptr);
    const double end = Now();
    times.without.push_back(end - start);
    times.backward_without.push_back(end - backward_start);
    return absl::OkStatus();
  }
  exchange.Begin(loss, /*accumulated=*/false);
  plan_->Backward(samples_, [&](size_t offset) { exchange.Ready(offset); });
  const double backward_end = Now();
  RETURN_IF_ERROR(exchange.Finish());
  const double end = Now();
  times.with.push_back(end - start);
  times.backward_with.push_back(backward_end - backward_start);
  times.wait.push_back(end - backward_end);
  return absl::OkStatus();
}

absl::Status Rank::AllReduce(Configuration& configuration, Times& times) {
  Limit(configuration);
  RETURN_IF_ERROR(control_->Barrier()->Wait());
  const double start = Now();
  const double processor_start = CpuTime();
  configuration.exchange->Begin({}, /*accumulated=*/false);
  RETURN_IF_ERROR(configuration.exchange->Finish());
  times.all_reduce.push_back(Now() - start);
  times.all_reduce_processor.push_back(CpuTime() - processor_start);
  return absl::OkStatus();
}

absl::Status Rank::Calibrate(Configuration& configuration) {
  Times backward;
  for (int i = 0; i < kCalibrationSteps; ++i) {
    RETURN_IF_ERROR(Step(configuration, /*communicate=*/false, backward));
  }
  ASSIGN_OR_RETURN(const double goal, Largest(Median(backward.backward_without)));
  const double sent = 2.0 * (flags_.ranks - 1) / flags_.ranks *
                      static_cast<double>(configuration.exchange->bytes());
  rate_ = sent / goal;
  for (int i = 0; i < kCalibrations; ++i) {
    Times times;
    for (int j = 0; j < kCalibrationSteps; ++j) RETURN_IF_ERROR(AllReduce(configuration, times));
    ASSIGN_OR_RETURN(const double time, Largest(Median(times.all_reduce)));
    if (std::abs(time / goal - 1) < kCalibrated) break;
    rate_ *= time / goal;
  }
  return absl::OkStatus();
}

absl::Status Rank::Report() {
  if (rank_ == 0 && !flags_.json) {
    std::printf("%s, %ldx%ld, batch %u, %u ranks; milliseconds\n", flags_.model.c_str(),
                flags_.image_size, flags_.image_size, flags_.batch, flags_.ranks);
    std::printf("%-8s %8s %8s %7s %6s %11s %10s %8s %9s %9s %8s %8s\n", "NETWORK", "FIRST", "REST",
                "BUCKETS", "MB/s", "ALL-REDUCE", "PROCESSOR", "WITHOUT", "BACKWARD", "WITH", "WAIT",
                "EXPOSED");
  }
  for (Configuration& configuration : configurations_) {
    const Times& times = configuration.times;
    double figures[] = {Median(times.all_reduce), Median(times.all_reduce_processor),
                        Median(times.without),    Median(times.backward_without),
                        Median(times.with),       Median(times.backward_with),
                        Median(times.wait),       Median(times.extra)};
    for (double& figure : figures) {
      ASSIGN_OR_RETURN(figure, Largest(figure));
    }
    const auto [all_reduce, processor, without, backward, with, backward_with, wait, extra] =
        figures;
    const double exposed = extra / all_reduce;
    const double rate = configuration.network == "limited" ? rate_ : 0;
    if (rank_ != 0) continue;
    const HostBucketReducerOptions& options = configuration.options;
    if (flags_.json) {
      const nlohmann::json line = {{"network", configuration.network},
                                   {"first_bucket_bytes", options.first_bucket_bytes},
                                   {"bucket_bytes", options.bucket_bytes},
                                   {"buckets", configuration.exchange->buckets()},
                                   {"bytes", configuration.exchange->bytes()},
                                   {"bytes_per_second", rate},
                                   {"all_reduce_seconds", all_reduce},
                                   {"all_reduce_processor_seconds", processor},
                                   {"step_without_seconds", without},
                                   {"backward_without_seconds", backward},
                                   {"step_with_seconds", with},
                                   {"backward_with_seconds", backward_with},
                                   {"wait_seconds", wait},
                                   {"exposed", exposed}};
      std::printf("%s\n", line.dump().c_str());
      continue;
    }
    std::printf("%-8s %8s %8s %7zu %6.0f %11.1f %10.1f %8.1f %9.1f %9.1f %8.1f %7.0f%%\n",
                configuration.network.c_str(), spec::SizeText(options.first_bucket_bytes).c_str(),
                spec::SizeText(options.bucket_bytes).c_str(), configuration.exchange->buckets(),
                rate / 1e6, all_reduce * 1e3, processor * 1e3, without * 1e3, backward * 1e3,
                with * 1e3, wait * 1e3, exposed * 100);
  }
  return control_->Barrier()->Wait();
}

absl::Status Rank::Run() {
  RETURN_IF_ERROR(SetUp());
  Times ignored;
  for (int i = 0; i < kWarmupSteps; ++i) {
    for (Configuration& configuration : configurations_) {
      RETURN_IF_ERROR(Step(configuration, /*communicate=*/true, ignored));
    }
  }
  for (Configuration& configuration : configurations_) {
    if (configuration.network != "limited" || rate_ > 0) continue;
    RETURN_IF_ERROR(Calibrate(configuration));
  }
  for (int i = 0; i < flags_.steps; ++i) {
    for (Configuration& configuration : configurations_) {
      RETURN_IF_ERROR(Step(configuration, /*communicate=*/false, configuration.times));
      RETURN_IF_ERROR(Step(configuration, /*communicate=*/true, configuration.times));
      RETURN_IF_ERROR(AllReduce(configuration, configuration.times));
      Times& times = configuration.times;
      times.extra.push_back(times.with.back() - times.without.back());
    }
  }
  return Report();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measure how much of the gradient all-reduce is hidden behind backward");
  app.add_option("--model", flags.model, "model name");
  app.add_option("--image-size", flags.image_size, "height and width")->check(CLI::Range(8, 512));
  app.add_option("--batch", flags.batch, "global batch size")->check(CLI::Range(1, 1 << 16));
  app.add_option("--ranks", flags.ranks, "number of processes")->check(CLI::Range(2, 64));
  app.add_option("--steps", flags.steps, "number of steps of each kind and configuration")
      ->check(CLI::Range(1, 10000));
  app.add_option("--network", flags.networks, "network to measure; may be repeated; default: all")
      ->check(CLI::IsMember({"shm", "gloo", "limited"}));
  app.add_option(
      "--bucket", flags.buckets,
      "sizes of the first and the other buckets, e.g. 1MiB:25MiB; default: the spec's default");
  app.add_flag("--json", flags.json, "print a line of JSON for each configuration");
  CLI11_PARSE(app, argc, argv);
  collectives::FileKeyStore store;
  const std::vector<std::string> results = collectives::RunRankProcesses(
      flags.ranks,
      [&](uint32_t rank) {
        const absl::Status status = Rank(flags, rank, &store).Run();
        std::fflush(stdout);
        return status;
      },
      absl::Minutes(30));
  int status = 0;
  for (const std::string& result : results) {
    if (result.empty()) continue;
    std::fprintf(stderr, "%s\n", result.c_str());
    status = 1;
  }
  return status;
}

}  // namespace
}  // namespace muster::train

int main(int argc, char** argv) { return muster::train::Main(argc, argv); }
