#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "common/time/steady_cond_var.h"
#include "coordinator/service/http/json/json_text.h"
#include "coordinator/service/http/streams/core_query.h"
#include "coordinator/service/http/streams/streams.h"
#include "coordinator/service/relay/log_tail_chunk.h"

namespace muster::service {
namespace {

// Hands chunks of a log from the relay's thread to the thread of a stream. At most one is in
// flight, because the relay reads the next one on request only.
class LogPipe final : public LogReader {
 public:
  void OnChunk(v1::LogChunk chunk) override {
    absl::MutexLock lock(&mutex_);
    chunk_ = std::move(chunk);
    changed_.Signal();
  }
  void OnEnd(absl::Status status) override {
    absl::MutexLock lock(&mutex_);
    end_ = std::move(status);
    changed_.Signal();
  }

  // Waits for kLookInterval at most. A chunk, the end, or nothing yet.
  std::variant<std::monostate, v1::LogChunk, absl::Status> Take() {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this] {
      mutex_.AssertReaderHeld();
      return chunk_.has_value() || end_.has_value();
    };
    if (!changed_.WaitFor(&mutex_, kLookInterval, ready)) return {};
    if (!chunk_.has_value()) return *end_;
    v1::LogChunk chunk = *std::move(chunk_);
    chunk_.reset();
    return chunk;
  }

 private:
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  std::optional<v1::LogChunk> chunk_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

// Where the log of a rank is: with the worker of a session, or its end with the coordinator.
struct LogPlace {
  uint64_t generation = 0;
  std::optional<SessionId> session;
  v1::LogChunk kept;
};

absl::StatusOr<LogPlace> FindLog(const core::Core& core, const core::Actor& viewer,
                                 const v1::ReadLogRequest& request, const Time& now) {
  ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request.job_id()));
  ASSIGN_OR_RETURN(const v1::Job job, core.GetJob(id, /*detailed=*/false, now));
  RETURN_IF_ERROR(core::CheckOwner(job, viewer));
  const Generation generation(request.generation());
  const Rank rank(request.rank());
  const absl::StatusOr<core::Core::RankLocation> location = core.FindRank(id, generation, rank);
  if (location.ok()) return LogPlace{location->generation.value(), location->session, {}};
  if (!absl::IsUnavailable(location.status())) return location.status();
  const absl::StatusOr<core::Core::KeptLog> kept = core.FindLogTail(id, generation, rank);
  if (!kept.ok()) return location.status();
  const std::string reason = absl::StrCat("node ", kept->node.value(), " is not connected");
  return LogPlace{kept->tail.generation(), std::nullopt, LogTailChunk(request, kept->tail, reason)};
}

bool SendChunk(const v1::LogChunk& chunk, uint64_t generation, EventWriter& out) {
  if (chunk.data().empty() && chunk.notice().empty()) return out.IsOpen();
  return out.Send("log", JsonObject()
                             .Add("generation", generation)
                             .Add("notice", chunk.notice())
                             .Add("text", ToUtf8(chunk.data()))
                             .Take());
}

}  // namespace

void StreamLog(PageSources& sources, const core::Actor& viewer, v1::ReadLogRequest request,
               EventWriter& out) {
  const absl::StatusOr<LogPlace> place =
      AskCore<LogPlace>(sources.loop, [viewer, request](core::Core& core, const Time& now) {
        return FindLog(core, viewer, request, now);
      });
  if (!place.ok()) {
    out.SendProblem(place.status());
    return;
  }
  if (!place->session.has_value()) {
    SendChunk(place->kept, place->generation, out);
    out.Send("end", "{}");
    return;
  }
  const auto pipe = std::make_shared<LogPipe>();
  const absl::StatusOr<TransferId> transfer = sources.logs.Open(*place->session, pipe);
  if (!transfer.ok()) {
    out.SendProblem(transfer.status());
    return;
  }
  request.set_generation(place->generation);
  sources.logs.Start(*transfer, request);
  while (out.IsOpen() && !sources.ticker.stopped()) {
    auto taken = pipe->Take();
    if (const auto* const chunk = std::get_if<v1::LogChunk>(&taken)) {
      SendChunk(*chunk, place->generation, out);
      sources.logs.Next(*transfer);
    } else if (const auto* const end = std::get_if<absl::Status>(&taken)) {
      if (!end->ok()) out.SendProblem(*end);
      out.Send("end", "{}");
      return;
    } else {
      out.Tick();
    }
  }
  sources.logs.Cancel(*transfer);
}

}  // namespace muster::service
