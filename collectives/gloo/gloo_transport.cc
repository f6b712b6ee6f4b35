#include "collectives/gloo/gloo_transport.h"

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collectives/peer_status.h"
#include "collectives/token_bucket.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/now.h"

namespace muster::collectives {
namespace {

// Time to wait for a peer's failure report: ranks that lose one another in turn report within
// milliseconds, ranks that time out together within the skew of their calls.
constexpr absl::Duration kReportTimeout = absl::Milliseconds(300);
constexpr absl::Duration kSearchTimeout = absl::Seconds(1);
// Poll interval for interruption while waiting for a key.
constexpr absl::Duration kKeySlice = absl::Milliseconds(500);
// Timeout for checking whether a key exists.
constexpr absl::Duration kKeyCheckTimeout = absl::Milliseconds(20);

// A failure report is one of these prefixes and a job rank. kCulprit is the result of a completed
// search; kSuspect is the peer of a rank that has just timed out, whose own report is read next.
constexpr absl::string_view kCulprit = "culprit ";
constexpr absl::string_view kSuspect = "suspect ";

std::string AddressKey(const GroupOptions& options, uint32_t from, uint32_t to) {
  return absl::StrCat("gloo/", options.id, "/address/", from, "-", to);
}

std::string BlameKey(const GroupOptions& options, uint32_t job_rank) {
  return absl::StrCat("gloo/", options.id, "/blames/", job_rank);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooTransport>> GlooTransport::Create(const GroupOptions& options) {
  std::unique_ptr<GlooTransport> transport(new GlooTransport(options));
  ASSIGN_OR_RETURN(transport->device_, CreateGlooDevice(options.interface_address));
  return {std::move(transport)};
}

GlooTransport::~GlooTransport() {
  std::shared_ptr<Lane> background;
  {
    absl::MutexLock lock(&mutex_);
    background = background_;
  }
  if (background != nullptr) background->Stop();
}

absl::Status GlooTransport::Connect(std::vector<uint32_t> peers) {
  // All ranks connect in ascending order, so that no cycle of waiting ranks can form.
  std::sort(peers.begin(), peers.end());
  std::vector<std::pair<uint32_t, GlooLink*>> mine;
  std::vector<uint32_t> others;  // being connected by another lane
  for (const uint32_t peer : peers) {
    absl::MutexLock lock(&mutex_);
    if (interrupted_) return absl::AbortedError("interrupted");
    if (ready_.count(peer) > 0) continue;
    if (links_.count(peer) > 0) {
      others.push_back(peer);
      continue;
    }
    ASSIGN_OR_RETURN(links_[peer], GlooLink::Listen(device_, options_.connect_timeout));
    mine.emplace_back(peer, links_[peer].get());
  }
  for (const auto& entry : mine) {
    ASSIGN_OR_RETURN(const std::string address, entry.second->Address());
    RETURN_IF_ERROR(options_.store->Put(AddressKey(options_, options_.rank, entry.first), address));
  }
  for (auto entry = mine.begin(); entry != mine.end(); ++entry) {
    const absl::Status status = ConnectOne(entry->first, entry->second);
    if (absl::IsDeadlineExceeded(status)) {
      std::vector<uint32_t> missing;
      for (; entry != mine.end(); ++entry) {
        const auto key = AddressKey(options_, entry->first, options_.rank);
        if (options_.store->Get(key, kKeyCheckTimeout).ok()) continue;
        missing.push_back(options_.members[entry->first]);
      }
      return PeersMissing(options_.name, missing, options_.connect_timeout);
    }
    RETURN_IF_ERROR(status);
    absl::MutexLock lock(&mutex_);
    ready_.insert(entry->first);
    connected_.SignalAll();
  }
  for (const uint32_t peer : others) {
    absl::MutexLock lock(&mutex_);
    while (ready_.count(peer) == 0 && !interrupted_) connected_.Wait(&mutex_);
    if (interrupted_) return absl::AbortedError("interrupted");
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::AwaitTurn(size_t size_bytes) {
  if (options_.send_limit == nullptr) return absl::OkStatus();
  const SteadyTime now = SteadyNow();
  const Deadline turn(options_.send_limit->Take(size_bytes, now) - now);
  absl::MutexLock lock(&mutex_);
  while (!interrupted_ && !turn.passed()) connected_.WaitUntil(&mutex_, turn);
  return interrupted_ ? absl::AbortedError("interrupted") : absl::OkStatus();
}

absl::Status GlooTransport::ConnectOne(uint32_t peer, GlooLink* link) {
  ASSIGN_OR_RETURN(const std::string address, PeerAddress(peer));
  const absl::Status status = link->Connect(address);
  if (status.ok() || interrupted()) return status;
  return PeerLost(options_.members[peer],
                  absl::StrCat("cannot be reached at ", address, ": ", status.message()));
}

absl::StatusOr<std::string> GlooTransport::PeerAddress(uint32_t peer) {
  const Deadline deadline(options_.connect_timeout);
  for (;;) {
    const absl::Duration left = deadline.left();
    absl::StatusOr<std::string> address =
        options_.store->Get(AddressKey(options_, peer, options_.rank), std::min(left, kKeySlice));
    if (!absl::IsDeadlineExceeded(address.status())) return address;
    if (interrupted()) return absl::AbortedError("interrupted");
    if (left == absl::ZeroDuration()) return address;
  }
}

std::unique_ptr<GlooBuffer> GlooTransport::Buffer(uint32_t peer, void* data) {
  absl::MutexLock lock(&mutex_);
  return std::make_unique<GlooBuffer>(this, links_[peer].get(), peer, data);
}

bool GlooTransport::interrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

void GlooTransport::Interrupt(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  connected_.SignalAll();
  for (GlooBuffer* buffer : waiting_) buffer->Interrupt();
  if (const absl::optional<uint32_t> blamed = PeerRankOf(failure); blamed.has_value()) {
    ReportLostRank(*blamed, Search::kDone);
  }
  // After the report, so that a peer that sees the connection break finds it.
  Background().Issue([this] {
    CloseLinks();
    return absl::OkStatus();
  });
}

Lane& GlooTransport::Background() {
  if (background_ == nullptr) background_ = Lane::Start("gloo failure");
  return *background_;
}

void GlooTransport::ReportLostRank(uint32_t blamed, Search search) {
  if (reported_) return;
  reported_ = true;
  Background().Issue([this, blamed, search] {
    return options_.store->Put(BlameKey(options_, options_.members[options_.rank]),
                               absl::StrCat(search == Search::kDone ? kCulprit : kSuspect, blamed));
  });
}

void GlooTransport::CloseLinks() {
  std::vector<GlooLink*> links;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& entry : links_) {
      if (entry.second != nullptr) links.push_back(entry.second.get());
    }
  }
  for (GlooLink* link : links) link->Close();
}

absl::Status GlooTransport::Failure(uint32_t peer, Verdict verdict, absl::string_view what) {
  if (interrupted()) return absl::AbortedError("interrupted");
  const uint32_t job_rank = options_.members[peer];
  if (verdict == Verdict::kTimedOut) {
    absl::MutexLock lock(&mutex_);
    ReportLostRank(job_rank, Search::kOpen);
  }
  const uint32_t culprit = FindLostRank(job_rank);
  if (verdict == Verdict::kTimedOut) {
    return PeersMissing(options_.name, {culprit}, options_.timeout);
  }
  if (culprit != job_rank) return PeerLost(culprit, "was lost (reported by a peer)");
  return PeerLost(job_rank, absl::StrCat("went away: ", what));
}

uint32_t GlooTransport::FindLostRank(uint32_t job_rank) {
  const Deadline deadline(kSearchTimeout);
  const uint32_t self = options_.members[options_.rank];
  std::set<uint32_t> seen = {self, job_rank};
  bool done = false;
  while (!done && !deadline.passed() && !interrupted()) {
    const absl::StatusOr<std::string> word =
        options_.store->Get(BlameKey(options_, job_rank), kReportTimeout);
    if (!word.ok()) break;
    absl::string_view text = *word;
    done = absl::ConsumePrefix(&text, kCulprit);
    if (!done) absl::ConsumePrefix(&text, kSuspect);
    uint32_t blamed = 0;
    if (!absl::SimpleAtoi(text, &blamed) || !seen.insert(blamed).second) break;
    job_rank = blamed;
  }
  return job_rank;
}

GlooBuffer::GlooBuffer(GlooTransport* transport, GlooLink* link, uint32_t peer, void* data)
    : transport_(transport),
      link_(link),
      peer_(peer),
      data_(static_cast<std::byte*>(data)),
      endpoint_(link->TakeEndpoint()) {}

GlooBuffer::~GlooBuffer() {
  if (sends_ == 0 && receives_ == 0) link_->ReturnEndpoint(std::move(endpoint_));
}

absl::Status GlooBuffer::Send(uint64_t slot, size_t offset, size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(transport_->AwaitTurn(size_bytes));
  ++sends_;
  const absl::Status status = link_->Send(endpoint_.get(), slot, data_ + offset, size_bytes);
  if (status.ok()) return status;
  return transport_->Failure(peer_, GlooTransport::Verdict::kLost, status.message());
}

absl::Status GlooBuffer::Receive(uint64_t slot, size_t offset, size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  ++receives_;
  const absl::Status status = link_->Receive(endpoint_.get(), slot, data_ + offset, size_bytes);
  if (status.ok()) return status;
  return transport_->Failure(peer_, GlooTransport::Verdict::kLost, status.message());
}

absl::Status GlooBuffer::AwaitReceived() {
  RETURN_IF_ERROR(Await(/*receive=*/true));
  --receives_;
  return absl::OkStatus();
}

absl::Status GlooBuffer::AwaitAllSent() {
  for (; sends_ > 0; --sends_) RETURN_IF_ERROR(Await(/*receive=*/false));
  return absl::OkStatus();
}

void GlooBuffer::Interrupt() {
  endpoint_->abortWaitRecv();
  endpoint_->abortWaitSend();
}

absl::Status GlooBuffer::Await(bool receive) {
  {
    absl::MutexLock lock(&transport_->mutex_);
    if (transport_->interrupted_) return absl::AbortedError("interrupted");
    transport_->waiting_.insert(this);
  }
  const auto timeout = absl::ToChronoMilliseconds(transport_->options_.timeout);
  const Deadline deadline(absl::FromChrono(timeout));
  bool complete = false;
  bool threw = false;
  std::string error = "the wait was interrupted";
  const auto wait = [&] {
    try {
      complete =
          receive ? endpoint_->waitRecv(nullptr, timeout) : endpoint_->waitSend(nullptr, timeout);
    } catch (const std::exception& exception) {
      threw = true;
      error = exception.what();
    }
  };
  wait();
  const bool timed_out = deadline.passed();
  // A pending wait throws even if its message completed just before the connection broke; a second
  // wait does not.
  if (threw && !timed_out) wait();
  {
    absl::MutexLock lock(&transport_->mutex_);
    transport_->waiting_.erase(this);
  }
  if (complete) return absl::OkStatus();
  return transport_->Failure(
      peer_, timed_out ? GlooTransport::Verdict::kTimedOut : GlooTransport::Verdict::kLost, error);
}

}  // namespace muster::collectives
