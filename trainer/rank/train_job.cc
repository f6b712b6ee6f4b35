#include "trainer/rank/train_job.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/optional.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "spec/spec.h"
#include "trainer/exit_code.h"
#include "trainer/loop/trainer.h"
#include "trainer/rank/gpu_fingerprint.h"
#include "trainer/rank/loader_threads.h"
#include "trainer/rank/preflight.h"
#include "trainer/rank/stop_signals.h"
#include "trainer/rank/world_options.h"
#include "trainer/strategy/create_strategy.h"

namespace muster::rank {
namespace {

// Timeout of waits for all ranks. Long, because peers may prepare their data for hours: the
// coordinator judges their progress and ends the generation, which a directive or a signal
// announces. An unavailable coordinator must not fail a job either.
constexpr absl::Duration kRanksTimeout = absl::Hours(7 * 24);

// States in memory that a rank reports, JoinInfo.memory.
constexpr size_t kMostInMemory = 64;

// Replaced by the node's name in directories of the spec.
constexpr absl::string_view kNodePattern = "{node}";

absl::optional<uint32_t> LostPeer(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(collectives::kPeerRankPayload);
  uint32_t peer = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &peer)) return absl::nullopt;
  return peer;
}

}  // namespace

absl::StatusOr<v1::Launch> ReadLaunch() {
  const char* path = std::getenv("MUSTER_LAUNCH_FILE");
  if (path == nullptr) {
    return absl::InvalidArgumentError(
        "MUSTER_LAUNCH_FILE is not set; muster-rank must be started by muster-worker");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("open ", path));
  v1::Launch launch;
  if (!launch.ParseFromIstream(&file)) {
    return absl::DataLossError(absl::StrCat(path, ": not a serialized Launch message"));
  }
  if (!launch.spec().has_train()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the spec is not a train job's"));
  }
  return launch;
}

TrainJob::TrainJob(const RankEnvironment& environment, v1::Launch launch, ControlPlane* control,
                   AbortSwitch* abort, train::RankRequests* requests, CommunicatorFactory factory)
    : environment_(environment),
      launch_(std::move(launch)),
      failure_timeout_(launch_.spec().has_failure_timeout()
                           ? FromProto(launch_.spec().failure_timeout())
                           : absl::Seconds(30)),
      control_(control),
      abort_(abort),
      requests_(requests),
      factory_(std::move(factory)) {}

int TrainJob::Run() {
  const absl::Status status = RunToEnd();
  if (status.ok()) return 0;
  if (requests_->stop_requested()) {
    stopped_by_ = requests_->stop_signal();
    LOG(WARNING) << phase_ << ": " << status.message();
    return train::kExitFailure;
  }
  // After the report, the coordinator stops the job's ranks with a signal, which must not replace
  // the exit code of this rank.
  for (const int signal : StopSignalsOf(launch_.spec())) std::signal(signal, SIG_IGN);
  ReportFailure(status);
  ReleaseDevices();
  return train::ExitCodeOf(status);
}

void TrainJob::ReleaseDevices() {
  if (gpus_.empty()) return;
  const SteadyTime start = SteadyNow();
  setup_.reset();
  nccl_.reset();
  gpus_.clear();
  LOG(INFO) << "released the GPUs in " << absl::FormatDuration(SteadyNow() - start);
}

absl::Status TrainJob::RunToEnd() {
  if (!environment_.trace_dir.empty()) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const bool on_gpu = UsesGpu(launch_.spec().resources(), visible != nullptr ? visible : "");
    trace_ = std::make_unique<train::StepTrace>(environment_.trace_dir, launch_.generation(),
                                                environment_.node_name,
                                                environment_.identity.rank(), !on_gpu, Now());
  }
  RETURN_IF_ERROR(OpenDevice());
  v1::LoaderSpec& loader = *launch_.mutable_spec()->mutable_train()->mutable_loader();
  if (loader.threads() == 0) {
    const uint32_t cpus = CpusOfRank(static_cast<uint32_t>(launch_.ranks_size()));
    loader.set_threads(LoaderThreads(launch_.spec().resources(), !gpus_.empty(), cpus));
    LOG(INFO) << "loader threads: " << loader.threads();
  }
  SetPhase("loading-data");
  ASSIGN_OR_RETURN(setup_, train::SetUpTraining(launch_.spec(), launch_.world_size(),
                                                CacheFor("loading-data"), Devices()));
  v1::JoinInfo info;
  info.set_layout_digest(setup_->strategy->layout_digest());
  info.mutable_fingerprint()->Assign(setup_->fingerprint.begin(), setup_->fingerprint.end());
  if (nccl_.has_value()) {
    for (v1::FingerprintEntry& entry :
         GpuFingerprint(nccl_->library->VersionText(), environment_.driver_version, environ)) {
      *info.add_fingerprint() = std::move(entry);
    }
  }
  RETURN_IF_ERROR(OpenCheckpoints(info));

  SetPhase("connecting");
  ASSIGN_OR_RETURN(const v1::JoinResponse joined, control_->Join(info, kRanksTimeout));
  if (joined.world().world_size() != setup_->world_size) {
    return absl::InternalError(absl::StrCat("launched for a world of ", setup_->world_size,
                                            " ranks, but joined a world of ",
                                            joined.world().world_size(), " ranks"));
  }
  RETURN_IF_ERROR(CheckResume(joined.world()));
  RETURN_IF_ERROR(Preflight(
      joined.world(), environment_, [this] { return !abort_->reason().ok(); }, control_));
  collectives::WorldOptions options = WorldOptionsOf(joined.world(), environment_.identity.rank());
  options.backend = launch_.spec().backend();
  options.hierarchical = launch_.spec().train().strategy().hierarchical();
  options.store = control_;
  if (nccl_.has_value()) options.nccl = &*nccl_;
  options.cancelled = [this] { return abort_->reason(); };
  ASSIGN_OR_RETURN(const train::ProcessGroups groups,
                   factory_(options, train::RequiredGroupsOf(launch_.spec().train())));
  for (collectives::Communicator* const group : groups.all()) abort_->Attach(group);
  absl::Cleanup detach = [this] { abort_->Detach(); };
  RETURN_IF_ERROR(control_->ReportConnected());
  RETURN_IF_ERROR(Train(groups, joined.world()));
  // A rank must not leave while a peer may still need it.
  return control_->Barrier("finish", kRanksTimeout);
}

absl::Status TrainJob::OpenDevice() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string& backend = launch_.spec().backend();
  if (!UsesGpu(launch_.spec().resources(), visible != nullptr ? visible : "")) {
    if (backend != "nccl") return absl::OkStatus();
    return train::WithExitCode(
        absl::InvalidArgumentError("backend nccl requires a GPU, and this rank has none"),
        train::kExitNoDevice);
  }
  SetPhase("opening-device");
  const size_t count = spec::DrivesSeveralDevices(launch_.spec().train().strategy())
                           ? static_cast<size_t>(std::max(1, Placement().slots_size()))
                           : 1;
  ASSIGN_OR_RETURN(gpus_, OpenGpus(NumericsOf(launch_.spec().train()), static_cast<int>(count)));
  if (count == 1 && visible != nullptr && absl::StrContains(visible, ',')) {
    LOG(WARNING) << "using only the first of the visible GPUs " << visible;
  }
  // With any other explicit backend, gradients are reduced by the processes.
  if (launch_.world_size() > 1 && train::RequiredGroupsOf(launch_.spec().train()).devices &&
      (backend.empty() || backend == "auto" || backend == "nccl")) {
    ASSIGN_OR_RETURN(nccl_, OpenNccl(*gpus_.front()));
    LOG(INFO) << "reducing gradients with NCCL " << nccl_->library->VersionText() << ", "
              << nccl_->library->path;
  }
  return absl::OkStatus();
}

v1::RankPlacement TrainJob::Placement() const {
  for (const v1::RankPlacement& placement : launch_.ranks()) {
    if (placement.rank() == environment_.identity.rank()) return placement;
  }
  return {};
}

std::vector<kernels::Device*> TrainJob::Devices() const {
  std::vector<kernels::Device*> devices;
  for (const auto& gpu : gpus_) devices.push_back(gpu.get());
  if (!devices.empty()) return devices;
  // A strategy that drives several devices uses one CPU device per slot.
  devices.assign(static_cast<size_t>(std::max(1, Placement().slots_size())), &kernels::CpuDevice());
  return devices;
}

absl::Status TrainJob::OpenCheckpoints(v1::JoinInfo& info) {
  const v1::CheckpointSpec& spec = launch_.spec().train().checkpoint();
  train::JobCheckpointOptions options;
  options.own.job_id = launch_.job_id();
  options.own.generation = launch_.generation();
  // On a node that has not mounted the cluster's file system, no directory must take its place.
  options.own.create_parents = !spec.dir().empty() || launch_.checkpoint_dir().empty();
  if (spec.has_keep()) options.own.keep = spec.keep();
  options.own.keep_best = spec.keep_best();
  if (options.own.keep > 0) options.own.path = CheckpointDirectoryPath();
  options.resume_from = OnThisNode(spec.resume_from());
  options.writes = environment_.identity.rank() == 0;
  options.training = setup_->identity;
  options.cache = CacheFor("verifying-checkpoint");
  auto opened = train::OpenJobCheckpoints(options);
  if (absl::IsAborted(opened.status()) || absl::IsUnavailable(opened.status())) {
    return opened.status();
  }
  RETURN_IF_ERROR(train::WithExitCode(opened.status(), train::kExitCannotCreate));
  checkpoints_ = *std::move(opened);
  // Once the ranks have joined, the thread that trains must not wait for the disk.
  if (options.writes && checkpoints_.own.has_value()) {
    train::CheckpointRef found = checkpoints_.own_newest.value_or(train::CheckpointRef());
    const auto best = checkpoints_.own->FindBest();
    if (best.ok() && best->has_value()) {
      found.best_name = (*best)->name;
      found.best_step = (*best)->step;
    }
    ReportCheckpoint(found);
  }
  DescribeNewestCheckpoint(info);
  return absl::OkStatus();
}

void TrainJob::DescribeNewestCheckpoint(v1::JoinInfo& info) {
  if (checkpoints_.newest.has_value()) {
    const train::CheckpointState& newest = checkpoints_.newest->state;
    info.set_has_checkpoint(true);
    info.set_checkpoint_step(newest.step);
    info.set_checkpoint_path(checkpoints_.source->FolderPath(checkpoints_.newest->name));
    info.set_checkpoint_job_id(newest.job_id);
    // The generation that wrote it: that of its name is this one on every rank that has claimed it.
    if (newest.job_id == launch_.job_id()) info.set_checkpoint_generation(newest.generation);
  }
  DescribeMemory(info);
}

void TrainJob::DescribeMemory(v1::JoinInfo& info) {
  // Without other ranks, no state outlives the loss of a rank.
  if (environment_.memory_dir.empty() || launch_.world_size() == 1) return;
  memory_.emplace(environment_.memory_dir);
  in_memory_ = memory_->Find(launch_.generation(), setup_->strategy->layout_digest());
  if (in_memory_.size() > kMostInMemory) in_memory_.resize(kMostInMemory);
  for (const train::MemoryCheckpoint& found : in_memory_) {
    v1::MemoryState& state = *info.add_memory();
    state.set_generation(found.generation);
    state.set_step(found.step);
    state.set_part(found.part);
    state.set_parts(found.parts);
  }
}

absl::StatusOr<std::vector<train::MemoryPart>> TrainJob::MemoryPartsOf(
    const v1::World& world) const {
  std::vector<train::MemoryPart> parts;
  const auto count = static_cast<uint32_t>(world.resume_memory_ranks_size());
  for (const uint32_t rank : world.resume_memory_ranks()) {
    train::MemoryCheckpoint wanted{.step = world.resume_step(),
                                   .generation = world.resume_generation(),
                                   .part = static_cast<uint32_t>(parts.size()),
                                   .parts = count};
    if (rank == environment_.identity.rank()) {
      const auto key = [](const train::MemoryCheckpoint& state) {
        return std::make_tuple(state.generation, state.step, state.part, state.parts);
      };
      const auto found = std::find_if(in_memory_.begin(), in_memory_.end(),
                                      [&](const auto& state) { return key(state) == key(wanted); });
      if (found == in_memory_.end() || !memory_.has_value()) {
        return absl::InternalError(
            absl::StrCat("this rank has not reported the state of step ", wanted.step));
      }
      wanted = *found;
    }
    parts.push_back({rank, std::move(wanted)});
  }
  return parts;
}

std::string TrainJob::CheckpointDirectoryPath() const {
  const std::string& dir = launch_.spec().train().checkpoint().dir();
  return dir.empty() ? environment_.checkpoint_dir : OnThisNode(dir);
}

void TrainJob::ReportCheckpoint(const train::CheckpointRef& newest) {
  const std::string& dir = launch_.spec().train().checkpoint().dir();
  v1::CheckpointStatus& status = checkpoint_status_;
  status.set_dir(checkpoints_.own->path());
  // Several nodes are expected to share a directory that has the same path on all of them.
  status.set_shared(dir.empty()
                        ? !launch_.checkpoint_dir().empty()
                        : launch_.node_count() > 1 && !absl::StrContains(dir, kNodePattern));
  if (!status.shared()) status.set_node(environment_.node_name);
  if (!newest.name.empty()) {
    status.set_step(newest.step);
    status.set_name(newest.name);
  }
  if (!newest.best_name.empty()) {
    status.set_best_step(newest.best_step);
    status.set_best_name(newest.best_name);
  }
  control_->ReportCheckpoint(status);
}

void TrainJob::ReportCheckpointFailure(uint64_t step, const absl::Status& failure) {
  checkpoint_status_.set_failures(checkpoint_status_.failures() + 1);
  checkpoint_status_.set_failed_step(step);
  checkpoint_status_.set_failure(std::string(failure.message()));
  control_->ReportCheckpoint(checkpoint_status_);
}

absl::Status TrainJob::CheckResume(const v1::World& world) const {
  const std::string& resume_from = launch_.spec().train().checkpoint().resume_from();
  if (resume_from.empty() || world.has_resume_rank()) return absl::OkStatus();
  return train::WithExitCode(
      absl::NotFoundError(absl::StrCat("train.checkpoint.resume_from: no rank found a valid "
                                       "checkpoint in ",
                                       resume_from)),
      train::kExitNoInput);
}

std::string TrainJob::OnThisNode(const std::string& directory) const {
  return absl::StrReplaceAll(directory, {{kNodePattern, environment_.node_name}});
}

absl::Status TrainJob::Train(const train::ProcessGroups& groups, const v1::World& world) {
  train::TrainerOptions options;
  options.job_id = launch_.job_id();
  options.generation = launch_.generation();
  options.canonical_layout = world.canonical_layout();
  if (world.has_resume_rank()) {
    ASSIGN_OR_RETURN(std::vector<train::MemoryPart> in_memory, MemoryPartsOf(world));
    const bool own = world.resume_job_id() == launch_.job_id() && in_memory.empty();
    options.resume =
        train::ResumePoint{world.resume_rank(), world.resume_step(), own, std::move(in_memory),
                           checkpoints_.newest.has_value() ? checkpoints_.newest->name : ""};
  }
  options.memory = memory_;
  options.layout_digest = setup_->strategy->layout_digest();
  options.on_peer_lost = [this](const absl::Status& failure, uint64_t step) {
    step_ = step;
    if (!requests_->stop_requested()) ReportFailure(failure);
  };
  options.checkpoints = checkpoints_.own;
  options.newest_checkpoint = checkpoints_.own_newest;
  options.shards_checkpoints = true;
  options.resume_directory = checkpoints_.source;
  options.on_checkpoint = [this](const train::CheckpointRef& written) {
    ReportCheckpoint(written);
  };
  options.on_checkpoint_failure = [this](uint64_t step, const absl::Status& failure) {
    ReportCheckpointFailure(step, failure);
  };
  options.requests = requests_;
  options.trace = trace_.get();
  options.failure_timeout = failure_timeout_;
  options.cache_dir = environment_.cache_dir;
  options.node_name = environment_.node_name;
  options.tensorboard_directory = OnThisNode(launch_.spec().train().tensorboard().dir());
  options.progress = [this](const v1::Progress& progress) {
    NotePhase(progress.phase());
    control_->ReportProgress(progress);
  };
  train::Trainer trainer(std::move(setup_), &groups, std::move(options));
  absl::StatusOr<v1::TrainSummary> summary = trainer.Run();
  step_ = trainer.step();
  RETURN_IF_ERROR(summary.status());
  if (groups.world->rank() == 0) RETURN_IF_ERROR(control_->ReportSummary(*summary));
  return absl::OkStatus();
}

void TrainJob::ReportFailure(const absl::Status& status) {
  if (std::exchange(reported_failure_, true)) return;
  const std::string node = absl::StrCat("node ", environment_.node_name);
  const bool named = absl::StartsWith(status.message(), node + " ");
  const std::string message =
      named ? std::string(status.message()) : absl::StrCat(node, ": ", status.message());
  LOG(ERROR) << phase_ << ": " << message;
  // The initiator of an abort needs no report.
  if (!abort_->reason().ok()) return;
  v1::FailureReport report;
  report.set_code(status.raw_code());
  report.set_message(message);
  report.set_phase(phase_);
  report.set_step(step_);
  report.set_not_retryable(train::IsPermanent(train::ExitCodeOf(status)));
  if (const auto peer = LostPeer(status)) report.set_peer_rank(*peer);
  const absl::Status reported = control_->ReportFailure(report);
  if (!reported.ok()) LOG(WARNING) << "cannot report the failure: " << reported;
}

data::Cache TrainJob::CacheFor(const std::string& phase) {
  data::Cache cache(environment_.cache_dir, [this, phase](uint64_t done, absl::string_view unit) {
    phase_ = phase;
    v1::Progress progress;
    progress.set_phase(phase);
    progress.set_phase_progress(done);
    progress.set_phase_unit(std::string(unit));
    control_->ReportProgress(progress);
  });
  // This rank must name the lock before it is reported as hung.
  cache.lock_timeout = failure_timeout_ / 2;
  return cache;
}

void TrainJob::NotePhase(const std::string& phase) {
  if (phase == phase_) return;
  phase_ = phase;
  if (trace_ != nullptr) trace_->SetPhase(phase, Now());
}

void TrainJob::SetPhase(const std::string& phase) {
  NotePhase(phase);
  v1::Progress progress;
  progress.set_phase(phase);
  control_->ReportProgress(progress);
}

}  // namespace muster::rank
