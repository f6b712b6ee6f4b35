#include "worker/agent/logs/log_server.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "spec/units.h"
#include "worker/agent/logs/log_file_reader.h"
#include "worker/shim/log/lost_output.h"

namespace muster::agent {

// The stream to one reader.
class LogServer::LogTransfer final
    : public StreamTransfer<grpc::ClientWriteReactor<v1::SendLogRequest>, v1::SendLogRequest> {
 public:
  LogTransfer(TransferHost host, LogServer& server, const v1::ReadLogRequest& request, bool live,
              std::string path, std::unique_ptr<LogFileReader> reader)
      : StreamTransfer(std::move(host)),
        server_(server),
        path_(std::move(path)),
        request_(request),
        live_(live),
        reader_(std::move(reader)) {}
  ~LogTransfer() override { server_.Unwatch(this); }

  void Start() override {
    host_.stub->async()->SendLog(&context_, &response_, this);
    Open();
  }
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) override {
    if (request_.job_id() != job_id || request_.generation() != generation) return;
    if (request_.rank() != rank) return;
    live_ = false;
    Advance();
  }
  // At the end of the log, waits for more data or finishes.
  void Advance() override;

 private:
  // `last` marks the final chunk.
  void Send(LogPiece piece, bool last);
  // Describes the missing bytes of the log; `ends` (first or last chunk) includes lost output.
  std::string Notice(uint64_t dropped_bytes, bool ends);

  LogServer& server_;
  const std::string path_;
  const v1::ReadLogRequest request_;
  bool live_;
  const std::unique_ptr<LogFileReader> reader_;
  bool sent_end_ = false;
  uint64_t noticed_bytes_ = 0;  // lost, in the newest notice
  v1::SendLogResponse response_;
};

void LogServer::LogTransfer::Advance() {
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
  } else if (!named_) {
    // The first message identifies the transfer, even if the log is empty.
    Send(*std::move(piece), false);
  } else if (!request_.follow()) {
    Finish();
  }
}

void LogServer::LogTransfer::Send(LogPiece piece, bool last) {
  const bool first = !named_;
  v1::LogChunk& chunk = *NextMessage().mutable_chunk();
  chunk.set_offset(piece.offset);
  chunk.set_data(std::move(piece.data));
  for (const shim::LineTime& line : piece.lines) {
    v1::LineTime& time = *chunk.add_lines();
    time.set_offset(line.offset);
    time.set_unix_micros(line.unix_micros);
  }
  chunk.set_notice(Notice(piece.dropped_bytes, first || last));
  chunk.set_end(last);
  chunk.set_generation(request_.generation());
  sent_end_ = last;
  Write();
}

std::string LogServer::LogTransfer::Notice(uint64_t dropped_bytes, bool ends) {
  std::vector<std::string> missing;
  if (dropped_bytes > 0) {
    missing.push_back(absl::StrCat(
        "the first ", dropped_bytes, " bytes were dropped (limit of each log: ",
        spec::SizeText(server_.options_.rank_log_bytes), ", --rank-log-bytes of the worker)"));
  }
  const shim::LostOutput lost = ends ? shim::ReadLostOutput(path_) : shim::LostOutput();
  if (lost.bytes > noticed_bytes_) {
    noticed_bytes_ = lost.bytes;
    missing.push_back(shim::LostText(lost));
  }
  if (missing.empty()) return "";
  return absl::StrCat("rank ", request_.rank(), ", ",
                      request_.stream() == v1::STDOUT ? "stdout" : "stderr", ": ",
                      absl::StrJoin(missing, "; "));
}

LogServer::LogServer(Options options, const DataDirectory& directory)
    : options_(std::move(options)),
      directory_(directory),
      inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      transfers_({"logs", options_.coordinator, options_.security, limits::kLogTransfers,
                  absl::StrCat("too many open log streams on this node (limit: ",
                               limits::kLogTransfers, ")"),
                  "the node that has the log cannot send it", options_.refuse}) {
  transfers_.loop().Post(
      [this] { transfers_.loop().Watch(inotify_.get(), [this] { OnFilesChanged(); }); });
}

void LogServer::Open(const v1::OpenLog& open, bool live) {
  transfers_.loop().Post([this, open, live] {
    transfers_.Start(open.transfer(),
                     [&](TransferHost host) { return Make(open, live, std::move(host)); });
  });
}

void LogServer::Close(uint64_t transfer) {
  transfers_.loop().Post([this, transfer] { transfers_.Close(transfer); });
}

void LogServer::CloseAll() {
  transfers_.loop().Post([this] { transfers_.CloseAll(); });
}

void LogServer::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  transfers_.loop().Post(
      [this, job_id, generation, rank] { transfers_.OnRankExited(job_id, generation, rank); });
}

absl::StatusOr<std::unique_ptr<Transfer>> LogServer::Make(const v1::OpenLog& open, bool live,
                                                          TransferHost host) {
  const v1::ReadLogRequest& request = open.request();
  RETURN_IF_ERROR(CheckJobId(request.job_id()));
  if (request.stream() != v1::STDOUT && request.stream() != v1::STDERR) {
    return absl::InvalidArgumentError("the log stream must be STDOUT or STDERR");
  }
  const std::string path =
      directory_.Log(request.job_id(), request.generation(), request.rank(), request.stream());
  if (live) {
    RETURN_IF_ERROR(MakeDirectories(directory_.Logs(request.job_id(), request.generation())));
  }
  auto reader = LogFileReader::Open(path, live);
  if (absl::IsNotFound(reader.status())) {
    return absl::NotFoundError(
        absl::StrCat("this node has no log of rank ", request.rank(), " of ", request.job_id(),
                     ", generation ", request.generation(),
                     ": the rank did not run here, or the log was deleted; finished logs are kept "
                     "for ",
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
  auto transfer = std::make_unique<LogTransfer>(std::move(host), *this, request, live, path,
                                                *std::move(reader));
  if (request.follow() && live) RETURN_IF_ERROR(Watch(path, transfer.get()));
  return transfer;
}

absl::Status LogServer::Watch(const std::string& path, LogTransfer* transfer) {
  const int watch = inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
  if (watch < 0) return ErrnoStatus(errno, absl::StrCat("watch ", path));
  watches_[watch].insert(transfer);
  return absl::OkStatus();
}

void LogServer::Unwatch(LogTransfer* transfer) {
  for (auto it = watches_.begin(); it != watches_.end();) {
    it->second.erase(transfer);
    if (!it->second.empty()) {
      ++it;
      continue;
    }
    inotify_rm_watch(inotify_.get(), it->first);
    it = watches_.erase(it);
  }
}

void LogServer::OnFilesChanged() {
  alignas(inotify_event) char buffer[4096];
  std::set<LogTransfer*> changed;
  ssize_t n = 0;
  while ((n = read(inotify_.get(), buffer, sizeof(buffer))) > 0) {
    for (const char* at = buffer; at < buffer + n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(at);
      for (const auto& [watch, transfers] : watches_) {
        // After an overflow, events were dropped, so any file may have changed.
        if (watch == event->wd || (event->mask & IN_Q_OVERFLOW) != 0) {
          changed.insert(transfers.begin(), transfers.end());
        }
      }
      at += sizeof(inotify_event) + event->len;
    }
  }
  for (LogTransfer* transfer : changed) transfer->Advance();
}

}  // namespace muster::agent
