#include "worker/agent/session/session.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/session/coordinator_channel.h"
#include "worker/agent/session/outgoing_message.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Seconds(3);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);
// Number of consecutive refusals that are final. A single one may come from a coordinator that has
// just started and whose token file is not yet written.
constexpr int kRefusals = 3;
constexpr absl::Duration kShortestInterval = absl::Milliseconds(10);

}  // namespace

// One stream, which keeps itself alive until gRPC is done with it. Thread-safe.
class Session::Stream : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  explicit Stream(Session* session)
      : session_(session),
        stub_(v1::WorkerService::NewStub(
            OpenCoordinatorChannel(session->coordinator_, session->security_))) {}

  void Start(std::shared_ptr<Stream> self, v1::Hello hello) {
    self_ = std::move(self);
    v1::WorkerMessage message;
    *message.mutable_hello() = std::move(hello);
    stub_->async()->Session(&context_, this);
    Write(std::move(message), false);
    StartRead(&incoming_);
    // Required because Close may write at any time.
    AddHold();
    StartCall();
  }

  // An `urgent` message overtakes queued ones.
  void Write(v1::WorkerMessage message, bool urgent) ABSL_LOCKS_EXCLUDED(mutex_) {
    MakeReadable(message);
    absl::MutexLock lock(&mutex_);
    if (broken_ || closing_) return;
    // The first message of the queue is being written.
    const auto place = urgent && !queue_.empty() ? queue_.begin() + 1 : queue_.end();
    queue_.insert(place, std::move(message));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  bool HasUrgent() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return queue_.size() > 1 && queue_[1].has_heartbeat();
  }

  // Closes the stream after the queued messages.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    if (queue_.empty()) HangUp();
  }

  void Cancel() { context_.TryCancel(); }

  // The coordinator's address. Valid once a message has been received.
  std::string peer() const { return context_.peer(); }

  SteadyTime last_heard() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return last_heard_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mutex_);
      broken_ = true;
      if (queue_.empty()) HangUp();
      return;
    }
    {
      absl::MutexLock lock(&mutex_);
      last_heard_ = Now().steady;
    }
    session_->OnArrival(this, incoming_);
    session_->loop_.Post([session = session_, self = self_, message = std::move(incoming_)] {
      session->OnMessage(self.get(), message);
    });
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    queue_.pop_front();
    if (!ok) {
      broken_ = true;
      queue_.clear();
    }
    if (!queue_.empty()) {
      StartWrite(&queue_.front());
    } else if (broken_ || closing_) {
      HangUp();
    }
  }

  void OnDone(const grpc::Status& status) override {
    // The stream's last owner destroys the channel, which must not happen on a gRPC thread: it
    // would wait for itself.
    session_->loop_.Post(
        [session = session_, self = std::move(self_), status = FromGrpcStatus(status)] {
          session->OnDone(self.get(), status);
        });
  }

 private:
  // Ends writing; called when no write is in progress and none will follow.
  void HangUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (hung_up_) return;
    hung_up_ = true;
    if (!broken_) StartWritesDone();
    RemoveHold();
  }

  Session* const session_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Stream> self_;
  absl::Mutex mutex_;
  std::deque<v1::WorkerMessage> queue_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool hung_up_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime last_heard_ ABSL_GUARDED_BY(mutex_) = Now().steady;
};

Session::Session(std::string coordinator, EventLoop& loop, ProgressBoard& board, Events events,
                 security::ClientSecurity security)
    : coordinator_(std::move(coordinator)),
      security_(std::move(security)),
      loop_(loop),
      board_(board),
      events_(std::move(events)),
      heartbeat_thread_([this] { HeartbeatLoop(); }) {
  loop_.Post([this] { Open(); });
}

Session::~Session() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  heartbeat_thread_.join();
  std::shared_ptr<Stream> stream;
  // On the loop, so that no stream is being opened concurrently.
  loop_.RunAndWait([this, &stream] {
    if (next_attempt_.has_value()) loop_.Cancel(*next_attempt_);
    absl::MutexLock lock(&mutex_);
    stream = stream_;
  });
  if (stream != nullptr) {
    stream->Close();
    {
      absl::MutexLock lock(&mutex_);
      changed_.WaitFor(&mutex_, kCloseTimeout, [this] {
        mutex_.AssertHeld();
        return closed_;
      });
    }
    stream->Cancel();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&closed_));
  }
  // Waits for the closures that were posted for this session.
  loop_.RunAndWait([] {});
}

void Session::Open() {
  next_attempt_.reset();
  v1::Hello hello;
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stream = stream_ = std::make_shared<Stream>(this);
    closed_ = false;
    sent_.clear();
  }
  hello_sent_ = BootNow();
  stream->Start(stream, events_.hello());
}

void Session::Send(v1::WorkerMessage message) {
  if (!welcomed_) return;
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Write(std::move(message), false);
}

void Session::OnArrival(const Stream* stream, const v1::CoordinatorMessage& message) {
  if (!events_.on_arrival || !(message.has_heartbeat_ack() || message.has_stop())) return;
  SteadyTime sent;
  {
    absl::MutexLock lock(&mutex_);
    if (stream != stream_.get()) return;
    if (message.has_heartbeat_ack()) {
      const auto heartbeat = sent_.find(message.heartbeat_ack().sequence());
      if (heartbeat == sent_.end()) return;
      sent = heartbeat->second;
    }
  }
  events_.on_arrival(message, sent);
}

void Session::OnMessage(const Stream* stream, v1::CoordinatorMessage message) {
  {
    absl::MutexLock lock(&mutex_);
    if (stream != stream_.get()) return;
  }
  if (message.has_heartbeat_ack()) {
    if (events_.on_heartbeat_ack) events_.on_heartbeat_ack(message.heartbeat_ack());
    return OnAck(message.heartbeat_ack());
  }
  if (!message.has_welcome()) {
    if (welcomed_) events_.on_message(std::move(message));
    return;
  }
  welcomed_ = ever_welcomed_ = true;
  failures_ = refusals_ = 0;
  last_error_.clear();
  {
    absl::MutexLock lock(&mutex_);
    beating_ = true;
    just_welcomed_ = true;
    changed_.SignalAll();
    const v1::Welcome& welcome = message.welcome();
    if (welcome.has_heartbeat_interval()) {
      interval_ = std::max(kShortestInterval, FromProto(welcome.heartbeat_interval()));
    }
    if (welcome.has_lease()) lease_ = std::max(2 * interval_, FromProto(welcome.lease()));
  }
  address_ = stream->peer();
  events_.on_welcome(message.welcome());
  const auto& peers = message.welcome().peers();
  events_.on_acknowledged(
      {hello_sent_, message.welcome().term(), address_, {peers.begin(), peers.end()}});
}

void Session::OnAck(const v1::HeartbeatAck& ack) {
  SteadyTime sent;
  {
    absl::MutexLock lock(&mutex_);
    const auto heartbeat = sent_.find(ack.sequence());
    if (heartbeat == sent_.end()) return;
    sent = heartbeat->second;
    sent_.erase(sent_.begin(), std::next(heartbeat));
  }
  events_.on_acknowledged({sent, ack.term(), address_, {ack.peers().begin(), ack.peers().end()}});
}

void Session::OnDone(const Stream* stream, const absl::Status& status) {
  bool stopping = false;
  {
    absl::MutexLock lock(&mutex_);
    if (stream != stream_.get()) return;
    stopping = stopping_;
    stream_.reset();
    beating_ = false;
    closed_ = true;
    changed_.SignalAll();
  }
  const bool was_welcomed = std::exchange(welcomed_, false);
  if (stopping) return;
  if (absl::IsFailedPrecondition(status) && EndRefused(status)) return;
  if (was_welcomed) events_.on_lost(status);
  const absl::Status reason = security::Explain(status, security_, coordinator_);
  const bool refused = absl::IsUnauthenticated(reason) || absl::IsPermissionDenied(reason);
  refusals_ = refused ? refusals_ + 1 : 0;
  // A worker that was accepted before has ranks to manage, and its operator can fix the
  // credentials.
  if (refusals_ == kRefusals && !ever_welcomed_ && EndRefused(reason)) return;
  const absl::Duration delay = NextDelay();
  // Log once, not at every attempt.
  const std::string error = status.ok() ? "the coordinator ended the session" : reason.ToString();
  if (error != last_error_) {
    LOG(WARNING) << "no session with the coordinator " << coordinator_ << ": " << error
                 << "; retrying";
    last_error_ = error;
  }
  next_attempt_ = loop_.RunAfter(delay, [this] { Open(); });
}

bool Session::EndRefused(const absl::Status& status) {
  if (events_.retries_refused && events_.retries_refused(status)) return false;
  events_.on_refused(status);
  return true;
}

void Session::Reconnect() {
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Cancel();
}

absl::Duration Session::NextDelay() {
  const absl::Duration delay =
      std::min(kLongestDelay, kFirstDelay * static_cast<int64_t>(1 << std::min(failures_, 10)));
  ++failures_;
  // Jitter, so that many workers do not reconnect at the same moment.
  return delay * absl::Uniform(random_, 0.5, 1.0);
}

void Session::HeartbeatLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      changed_.WaitFor(&mutex_, interval_, [this] {
        mutex_.AssertHeld();
        return stopping_ || just_welcomed_;
      });
      just_welcomed_ = false;
      if (stopping_) return;
    }
    Beat();
  }
}

void Session::Beat() {
  std::shared_ptr<Stream> stream;
  v1::WorkerMessage message;
  bool beating = false;
  absl::Duration patience;
  {
    absl::MutexLock lock(&mutex_);
    stream = stream_;
    beating = beating_;
    if (beating) message.mutable_heartbeat()->set_sequence(++sequence_);
    // Before the heartbeat leaves: an earlier time is safe.
    if (beating) sent_[sequence_] = BootNow();
    patience = beating ? lease_ : kConnectTimeout;
  }
  if (stream == nullptr) return;
  // A network partition does not close the stream, so missing acknowledgements must be detected.
  if (Now().steady - stream->last_heard() > patience) return stream->Cancel();
  if (!beating || stream->HasUrgent()) return;
  for (v1::GenerationReport& report : board_.TakeChanged()) {
    *message.mutable_heartbeat()->add_progress() = std::move(report);
  }
  stream->Write(std::move(message), true);
}

}  // namespace muster::agent
