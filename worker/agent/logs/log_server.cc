#include "worker/agent/logs/log_server.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "spec/units.h"
#include "worker/agent/coordinator_channel.h"
#include "worker/agent/logs/log_file_reader.h"
#include "worker/shim/lost_output.h"

namespace muster::agent {
namespace {

struct Source {
  std::string job_id;
  uint64_t generation = 0;
  uint32_t rank = 0;
  friend bool operator==(const Source& a, const Source& b) {
    return std::tie(a.job_id, a.generation, a.rank) == std::tie(b.job_id, b.generation, b.rank);
  }
};

}  // namespace

// The stream to one reader. It runs on the server's loop; gRPC's threads only post to it.
class LogServer::Transfer : public grpc::ClientWriteReactor<v1::SendLogRequest> {
 public:
  Transfer(LogServer::Impl& server, uint64_t id, const v1::ReadLogRequest& request,
           uint64_t generation, bool live, std::string path, std::unique_ptr<LogFileReader> reader)
      : server_(server),
        id_(id),
        path_(std::move(path)),
        source_{request.job_id(), generation, request.rank()},
        stream_(request.stream()),
        follow_(request.follow()),
        live_(live),
        reader_(std::move(reader)) {}

  void Start(std::shared_ptr<v1::WorkerService::Stub> stub) {
    stub_ = std::move(stub);
    stub_->async()->SendLog(&context_, &response_, this);
    // Required because Advance starts operations outside of reactions.
    AddHold();
    StartCall();
    Advance();
  }

  // Sends the next chunk unless a write is in progress; at the end of the log, waits for more data
  // or finishes.
  void Advance();
  void Cancel() {
    context_.TryCancel();
    broken_ = true;
    Advance();
  }
  void OnRankExited() {
    live_ = false;
    Advance();
  }
  const Source& source() const { return source_; }
  const std::shared_ptr<v1::WorkerService::Stub>& stub() const { return stub_; }
  void OnWritten(bool ok) {
    writing_ = false;
    broken_ = broken_ || !ok;
    Advance();
  }

  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  // `last` marks the final chunk.
  void Send(LogPiece piece, bool last);
  // Describes the missing bytes of the log; `ends` (first or last chunk) includes lost output.
  std::string Notice(uint64_t dropped_bytes, bool ends);
  void Finish() {
    if (std::exchange(finished_, true)) return;
    if (!broken_) StartWritesDone();
    RemoveHold();
  }

  LogServer::Impl& server_;
  std::shared_ptr<v1::WorkerService::Stub> stub_;
  const uint64_t id_;
  const std::string path_;
  const Source source_;
  const v1::LogStream stream_;
  const bool follow_;
  bool live_;
  const std::unique_ptr<LogFileReader> reader_;
  bool named_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool finished_ = false;
  bool sent_end_ = false;
  uint64_t noticed_bytes_ = 0;  // lost, in the newest notice
  grpc::ClientContext context_;
  v1::SendLogRequest outgoing_;
  v1::SendLogResponse response_;
};

// All state is used on its own loop.
class LogServer::Impl {
 public:
  Impl(Options options, const DataDirectory& directory)
      : options_(std::move(options)),
        directory_(directory),
        stub_(options_.coordinator, options_.security),
        inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        loop_("logs") {
    loop_.Post([this] { loop_.Watch(inotify_, [this] { OnFilesChanged(); }); });
  }

  ~Impl() {
    loop_.RunAndWait([this] {
      stopping_ = true;
      CloseAll();
    });
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::AllDone));
    close(inotify_);
  }

  EventLoop& loop() { return loop_; }
  const Options& options() const { return options_; }

  void Open(const v1::OpenLog& open, bool live) {
    const absl::Status status = TryOpen(open, live);
    if (!status.ok()) options_.refuse(open.transfer(), status);
  }

  void Close(uint64_t id) {
    const auto it = transfers_.find(id);
    if (it != transfers_.end()) it->second->Cancel();
  }

  // Readers reconnect through the next coordinator session.
  void CloseAll() {
    for (auto& [id, transfer] : transfers_) transfer->Cancel();
    stub_.Reset();
  }

  void OnRankExited(const Source& source) {
    for (auto& [id, transfer] : transfers_) {
      if (transfer->source() == source) transfer->OnRankExited();
    }
  }

  void OnDone(uint64_t id, const absl::Status& status) {
    const auto done = transfers_.find(id);
    // The coordinator may not have received the stream at all, and cancels those that have no
    // reader.
    if (!status.ok() && !absl::IsCancelled(status)) {
      stub_.Drop(done->second->stub());
      options_.refuse(id, absl::UnavailableError(absl::StrCat(
                              "the node that has the log cannot send it: ", status.message())));
    }
    transfers_.erase(done);
    for (auto it = watches_.begin(); it != watches_.end();) {
      it->second.erase(id);
      if (!it->second.empty()) {
        ++it;
        continue;
      }
      inotify_rm_watch(inotify_, it->first);
      it = watches_.erase(it);
    }
    absl::MutexLock lock(&mutex_);
    --open_;
  }

  void Written(uint64_t id, bool ok) {
    const auto it = transfers_.find(id);
    if (it != transfers_.end()) it->second->OnWritten(ok);
  }

 private:
  absl::Status TryOpen(const v1::OpenLog& open, bool live) {
    const v1::ReadLogRequest& request = open.request();
    RETURN_IF_ERROR(CheckJobId(request.job_id()));
    if (request.stream() != v1::STDOUT && request.stream() != v1::STDERR) {
      return absl::InvalidArgumentError("the log stream must be STDOUT or STDERR");
    }
    if (stopping_) return absl::UnavailableError("the worker is shutting down");
    if (transfers_.count(open.transfer()) > 0) return absl::OkStatus();
    if (transfers_.size() >= limits::kLogTransfers) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "too many open log streams on this node (limit: ", limits::kLogTransfers, ")"));
    }
    const std::string path =
        directory_.Log(request.job_id(), request.generation(), request.rank(), request.stream());
    if (live)
      RETURN_IF_ERROR(MakeDirectories(directory_.Logs(request.job_id(), request.generation())));
    auto reader = LogFileReader::Open(path, live);
    if (absl::IsNotFound(reader.status())) {
      return absl::NotFoundError(absl::StrCat(
          "this node has no log of rank ", request.rank(), " of ", request.job_id(),
          ", generation ", request.generation(),
          ": the rank did not run here, or the log was deleted; finished logs are kept for ",
          options_.kept, " (--keep-logs, --keep-logs-bytes)"));
    }
    if (!reader.ok()) return reader.status();
    if (request.tail_lines() > 0) {
      RETURN_IF_ERROR((*reader)->SeekTail(request.tail_lines()));
    } else {
      (*reader)->Seek(request.offset());
    }
    if (request.has_since()) {
      RETURN_IF_ERROR((*reader)->SeekSince(absl::ToUnixMicros(FromProto(request.since()))));
    }
    if (request.follow() && live) {
      const int watch = inotify_add_watch(inotify_, path.c_str(), IN_MODIFY);
      if (watch < 0) return ErrnoStatus(errno, absl::StrCat("watch ", path));
      watches_[watch].insert(open.transfer());
    }
    {
      absl::MutexLock lock(&mutex_);
      ++open_;
    }
    auto& transfer = transfers_[open.transfer()];
    transfer = std::make_unique<Transfer>(*this, open.transfer(), request, request.generation(),
                                          live, path, *std::move(reader));
    transfer->Start(stub_.Get());
    return absl::OkStatus();
  }

  void OnFilesChanged() {
    alignas(inotify_event) char buffer[4096];
    std::set<uint64_t> changed;
    ssize_t n = 0;
    while ((n = read(inotify_, buffer, sizeof(buffer))) > 0) {
      for (const char* at = buffer; at < buffer + n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        const auto it = watches_.find(event->wd);
        if (it != watches_.end()) changed.insert(it->second.begin(), it->second.end());
        // Events were dropped, so any file may have changed.
        if ((event->mask & IN_Q_OVERFLOW) != 0) {
          for (const auto& [id, transfer] : transfers_) changed.insert(id);
        }
        at += sizeof(inotify_event) + event->len;
      }
    }
    for (const uint64_t id : changed) {
      const auto it = transfers_.find(id);
      if (it != transfers_.end()) it->second->Advance();
    }
  }

  bool AllDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; }

  const Options options_;
  const DataDirectory& directory_;
  CoordinatorStub stub_;
  const int inotify_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  std::map<int, std::set<uint64_t>> watches_;  // by inotify watch descriptor
  bool stopping_ = false;
  absl::Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  EventLoop loop_;
};

void LogServer::Transfer::Advance() {
  if (writing_ || finished_) return;
  if (broken_ || sent_end_) return Finish();
  // Read before the log, so that the log is complete if the rank has exited.
  const bool live = live_;
  absl::StatusOr<LogPiece> piece = reader_->Read(limits::kLogChunkBytes);
  if (!piece.ok()) return Cancel();
  if (!piece->data.empty()) {
    Send(*std::move(piece), false);
  } else if (!live) {
    Send(*std::move(piece), true);
  } else if (!follow_) {
    // The first message identifies the transfer, even if the log is empty.
    if (named_) return Finish();
    Send(*std::move(piece), false);
  } else if (!named_) {
    Send(*std::move(piece), false);
  }
}

void LogServer::Transfer::Send(LogPiece piece, bool last) {
  outgoing_.Clear();
  const bool first = !std::exchange(named_, true);
  if (first) outgoing_.set_transfer(id_);
  v1::LogChunk& chunk = *outgoing_.mutable_chunk();
  chunk.set_offset(piece.offset);
  chunk.set_data(std::move(piece.data));
  for (const shim::LineTime& line : piece.lines) {
    v1::LineTime& time = *chunk.add_lines();
    time.set_offset(line.offset);
    time.set_unix_micros(line.unix_micros);
  }
  chunk.set_notice(Notice(piece.dropped_bytes, first || last));
  chunk.set_end(last);
  chunk.set_generation(source_.generation);
  sent_end_ = last;
  writing_ = true;
  StartWrite(&outgoing_);
}

std::string LogServer::Transfer::Notice(uint64_t dropped_bytes, bool ends) {
  std::vector<std::string> missing;
  if (dropped_bytes > 0) {
    missing.push_back(absl::StrCat(
        "the first ", dropped_bytes, " bytes were dropped (limit of each log: ",
        spec::SizeText(server_.options().rank_log_bytes), ", --rank-log-bytes of the worker)"));
  }
  const shim::LostOutput lost = ends ? shim::ReadLostOutput(path_) : shim::LostOutput();
  if (lost.bytes > noticed_bytes_) {
    noticed_bytes_ = lost.bytes;
    missing.push_back(shim::LostText(lost));
  }
  if (missing.empty()) return "";
  return absl::StrCat("rank ", source_.rank, ", ", stream_ == v1::STDOUT ? "stdout" : "stderr",
                      ": ", absl::StrJoin(missing, "; "));
}

void LogServer::Transfer::OnWriteDone(bool ok) {
  server_.loop().Post([&server = server_, id = id_, ok] { server.Written(id, ok); });
}

void LogServer::Transfer::OnDone(const grpc::Status& status) {
  server_.loop().Post([&server = server_, id = id_, status = FromGrpcStatus(status)] {
    server.OnDone(id, status);
  });
}

LogServer::LogServer(Options options, const DataDirectory& directory)
    : impl_(std::make_unique<Impl>(std::move(options), directory)) {}

LogServer::~LogServer() = default;

void LogServer::Open(const v1::OpenLog& open, bool live) {
  impl_->loop().Post([impl = impl_.get(), open, live] { impl->Open(open, live); });
}

void LogServer::Close(uint64_t transfer) {
  impl_->loop().Post([impl = impl_.get(), transfer] { impl->Close(transfer); });
}

void LogServer::CloseAll() {
  impl_->loop().Post([impl = impl_.get()] { impl->CloseAll(); });
}

void LogServer::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  impl_->loop().Post([impl = impl_.get(), source = Source{job_id, generation, rank}] {
    impl->OnRankExited(source);
  });
}

}  // namespace muster::agent
