#include "worker/agent/generation/store/hosted_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "worker/agent/generation/ranks/shim_process.h"
#include "worker/agent/user_files.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

constexpr char kDirectory[] = "/c10d-store";
constexpr absl::Duration kReadyInterval = absl::Milliseconds(5);
constexpr absl::Duration kReadyPatience = absl::Seconds(30);
constexpr size_t kMaxStatusBytes = 16 << 20;

std::string DirectoryOf(const GenerationContext& context, const v1::Launch& launch) {
  return context.directory->Generation(launch.job_id(), launch.generation()) + kDirectory;
}

// The directory in which the store writes.
std::string OutputOf(const std::string& directory, bool has_user) {
  return has_user ? absl::StrCat(directory, "/user") : directory;
}

absl::Status MakeStoreDirectories(const std::string& directory,
                                  const std::optional<JobUser>& user) {
  if (!user.has_value()) return MakeDirectories(directory);
  RETURN_IF_ERROR(MakePassage(directory));
  return MakeUserDirectory(OutputOf(directory, true), *user);
}

shim::Instructions MakeStoreInstructions(const GenerationContext& context, const v1::Launch& launch,
                                         const Address& endpoint,
                                         const std::optional<JobUser>& user,
                                         const std::string& token) {
  const std::string directory = OutputOf(DirectoryOf(context, launch), user.has_value());
  const std::string log =
      absl::StrCat(context.directory->Logs(launch.job_id(), launch.generation()), "/c10d-store");
  shim::Instructions instructions;
  if (user.has_value()) instructions.user = user->credentials;
  instructions.command = {context.store_binary, directory, endpoint.host,
                          absl::StrCat(endpoint.port), absl::StrCat(launch.world_size())};
  instructions.environment = {absl::StrCat("MUSTER_JOB_ID=", launch.job_id()),
                              absl::StrCat("MUSTER_GENERATION=", launch.generation()),
                              absl::StrCat(kTokenVariable, token)};
  instructions.workdir = directory;
  instructions.stdout_path = absl::StrCat(log, ".stdout");
  instructions.stderr_path = absl::StrCat(log, ".stderr");
  instructions.log_max_bytes = context.rank_log_bytes;
  instructions.failure_timeout_ms =
      absl::ToInt64Milliseconds(FromProto(launch.spec().failure_timeout()));
  instructions.lease_deadline_ms = context.lease_deadline_ms(launch);
  instructions.mark = shim::NewMark();
  return instructions;
}

// Why the store ended by itself.
std::string EndText(const std::optional<shim::ExitRecord>& record) {
  if (!record.has_value()) return "its shim was lost";
  if (record->exec_errno != 0) return record->exec_error;
  const std::string how = record->signal != 0 ? absl::StrCat("signal ", record->signal)
                                              : absl::StrCat("exit code ", record->exit_code);
  const absl::string_view log = absl::StripAsciiWhitespace(record->stderr_tail);
  return log.empty() ? how : absl::StrCat(how, ": ", log);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostedStore>> HostedStore::Start(const GenerationContext& context,
                                                                const v1::Launch& launch,
                                                                const Address& endpoint,
                                                                const std::optional<JobUser>& user,
                                                                Events events) {
  const std::string directory = DirectoryOf(context, launch);
  RETURN_IF_ERROR(MakeStoreDirectories(directory, user));
  std::unique_ptr<HostedStore> store(new HostedStore(context, directory, std::move(events)));
  if (user.has_value()) store->uid_ = user->credentials.uid;
  const std::string token = RandomHexId(128);
  ASSIGN_OR_RETURN(store->shim_,
                   ShimProcess::Start(*context.loop, context.shim_binary, directory,
                                      MakeStoreInstructions(context, launch, endpoint, user, token),
                                      {}, store->ShimEvents()));
  store->awaits_ready_ = true;
  store->ready_deadline_ = Now().steady + kReadyPatience;
  store->AwaitReady();
  return store;
}

std::unique_ptr<HostedStore> HostedStore::Adopt(const GenerationContext& context,
                                                const v1::Launch& launch, Events events) {
  const std::string directory = DirectoryOf(context, launch);
  const auto text = shim::ReadFile(absl::StrCat(directory, "/", shim::kInstructionsFile));
  if (!text.has_value()) return nullptr;
  const auto instructions = shim::DecodeInstructions(*text);
  if (!instructions.has_value()) return nullptr;
  std::unique_ptr<HostedStore> store(new HostedStore(context, directory, std::move(events)));
  if (instructions->user.has_value()) store->uid_ = instructions->user->uid;
  store->shim_ = ShimProcess::Adopt(*context.loop, directory, *instructions, store->ShimEvents());
  return store;
}

HostedStore::~HostedStore() {
  if (timer_.has_value()) loop_.Cancel(*timer_);
}

ShimProcess::Events HostedStore::ShimEvents() {
  ShimProcess::Events events;
  events.on_started = [](pid_t) {};
  events.on_ended = [this](const std::optional<shim::ExitRecord>& record) { OnEnded(record); };
  return events;
}

void HostedStore::AwaitReady() {
  timer_ = loop_.RunAfter(kReadyInterval, [this] {
    timer_.reset();
    if (ReadStatusFile().has_value()) {
      awaits_ready_ = false;
      return events_.on_ready(absl::OkStatus());
    }
    if (Now().steady < ready_deadline_) return AwaitReady();
    awaits_ready_ = false;
    Stop();
    events_.on_ready(absl::DeadlineExceededError(absl::StrCat(
        "the hosted c10d store did not listen within ", absl::FormatDuration(kReadyPatience))));
  });
}

void HostedStore::OnEnded(const std::optional<shim::ExitRecord>& record) {
  shim_.reset();
  if (std::exchange(awaits_ready_, false)) {
    if (timer_.has_value()) loop_.Cancel(*std::exchange(timer_, std::nullopt));
    events_.on_ready(
        absl::UnavailableError(absl::StrCat("the hosted c10d store has ended: ", EndText(record))));
  } else if (!record.has_value() || !record->stopped) {
    failure_ = absl::StrCat("the hosted c10d store has ended: ", EndText(record));
  }
  events_.on_ended();
}

void HostedStore::Stop() {
  if (shim_ != nullptr) shim_->Stop(absl::ZeroDuration());
}

void HostedStore::SetLeaseDeadline(int64_t boot_ms) {
  if (shim_ != nullptr) shim_->SetLeaseDeadline(boot_ms);
}

std::optional<std::string> HostedStore::ReadStatusFile() const {
  return ReadUserFile(
      absl::StrCat(OutputOf(directory_, uid_.has_value()), "/", c10d_store::kStatusFile),
      kMaxStatusBytes, uid_);
}

bool HostedStore::ReadStatus() {
  if (shim_ == nullptr) return false;
  const std::optional<std::string> text = ReadStatusFile();
  if (!text.has_value()) return false;
  std::optional<c10d_store::Status> status = c10d_store::DecodeStatus(*text);
  if (!status.has_value()) {
    LOG(WARNING) << "damaged: " << c10d_store::kStatusFile << " of " << directory_;
    return false;
  }
  if (*status == status_) return false;
  status_ = *std::move(status);
  return true;
}

v1::StoreWaits HostedStore::Waits() const {
  v1::StoreWaits waits;
  if (shim_ == nullptr) return waits;
  const int64_t now_ms = shim::BootMs();
  for (const c10d_store::WaitReport& report : status_.waits) {
    v1::StoreWait& wait = *waits.add_waits();
    wait.set_what(report.what);
    *wait.mutable_since() =
        ToProto(absl::Milliseconds(std::max<int64_t>(0, now_ms - report.since_boot_ms)));
    for (const uint32_t rank : report.missing) wait.add_missing(rank);
    wait.set_reason(report.reason);
  }
  return waits;
}

}  // namespace muster::agent
