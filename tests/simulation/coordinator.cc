#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster::simulation {

void Coordinator::Start() {
  if (up()) return;
  core::Options options;
  options.incarnation = Incarnation(++process_);
  auto core = std::make_unique<core::Core>(options);
  std::vector<store::Record> records;
  for (const auto& [key, value] : disk_) records.push_back({key, value});
  absl::StatusOr<core::Effects> loaded = core->Load(records, world_.scheduler.now());
  if (!loaded.ok()) {
    world_.violations.Add(absl::StrCat("recovery failed: ", loaded.status().ToString()));
    return;
  }
  core_ = std::move(core);
  paused_until_ = SteadyTime();
  armed_ = SteadyTime::Infinite();
  world_.Note("coordinator starts");
  world_.NotifyCheckers(&Checker::OnRecovered, *core_, world_.scheduler.now());
  Commit(*loaded);
  ArmTick();
}

void Coordinator::Crash() {
  if (!up()) return;
  world_.Note("coordinator crashes");
  // Commits are in order, so a prefix of them reached the disk.
  const size_t durable = world_.random.Below(turns_.size() + 1);
  for (size_t i = 0; i < turns_.size(); ++i) {
    if (i < durable && !turns_[i].committed) Commit(turns_[i].effects);
  }
  turns_.clear();
  ++process_;
  core_.reset();
  requests_.clear();
  for (auto& [id, session] : std::exchange(sessions_, {})) {
    session.stream->coordinator_end = nullptr;
    session.stream->Break();
  }
}

void Coordinator::Open(const std::shared_ptr<Stream>& stream, const v1::Hello& hello,
                       std::function<void(const v1::CoordinatorMessage&)> deliver,
                       std::function<void(const absl::Status&)> closed) {
  if (!up()) {
    stream->Break();
    return;
  }
  const SessionId id(next_session_++);
  stream->session = id;
  stream->coordinator_end = [this, id, process = process_] {
    if (process == process_ && sessions_.erase(id) != 0) Handle(core::SessionClosed{id});
  };
  sessions_[id] = {stream, std::move(deliver), std::move(closed)};
  workers_[id] = {hello.node_name(), hello.incarnation()};
  Handle(core::SessionOpened{id, hello, "10.0.0.1"});
}

void Coordinator::Receive(const std::shared_ptr<Stream>& stream, const v1::WorkerMessage& message) {
  if (up() && sessions_.count(stream->session) != 0) {
    Handle(core::SessionMessage{stream->session, message});
  }
}

void Coordinator::Request(core::Event event, std::function<void(const core::Reply&)> done) {
  if (!up()) return;
  std::visit(
      [&](const auto& request) {
        if constexpr (requires { request.request; }) requests_[request.request] = std::move(done);
      },
      event);
  Handle(std::move(event));
}

void Coordinator::Handle(core::Event event) {
  // A paused process handles its events when it continues.
  if (paused_until_ > world_.scheduler.now().steady) {
    world_.scheduler.At(paused_until_, [this, event = std::move(event), process = process_] {
      if (process == process_ && up()) Step(event);
    });
    return;
  }
  Step(event);
}

bool Coordinator::IsStale(const core::Event& event) const {
  const auto* message = std::get_if<core::SessionMessage>(&event);
  if (message == nullptr) return false;
  const auto& [node, incarnation] = workers_.at(message->session);
  const auto accepted = accepted_.find(node);
  return accepted != accepted_.end() && accepted->second != incarnation;
}

void Coordinator::Step(const core::Event& event) {
  core::Effects effects = core_->Step(event, world_.scheduler.now());
  world_.NotifyCheckers(&Checker::OnStep, event, effects, IsStale(event));
  for (const core::Send& send : effects.sends) {
    if (send.message.has_welcome()) {
      const auto& [node, incarnation] = workers_.at(send.session);
      accepted_[node] = incarnation;
    }
  }
  Turn turn;
  turn.committed = effects.writes.empty();
  turn.effects = std::move(effects);
  turns_.push_back(std::move(turn));
  if (!turns_.back().committed) {
    last_commit_ = std::max(last_commit_, world_.scheduler.now().steady) +
                   world_.random.Between(absl::Microseconds(100), absl::Milliseconds(10));
    const uint64_t number = first_turn_ + turns_.size() - 1;
    world_.scheduler.At(last_commit_, [this, number, process = process_] {
      if (process != process_) return;
      Turn& turn = turns_[number - first_turn_];
      Commit(turn.effects);
      turn.committed = true;
      ReleaseCommitted();
    });
  }
  ReleaseCommitted();
  ArmTick();
}

void Coordinator::Commit(const core::Effects& effects) {
  for (const store::Mutation& write : effects.writes) {
    if (write.value.has_value()) {
      disk_[write.key] = *write.value;
    } else {
      disk_.erase(write.key);
    }
  }
  world_.NotifyCheckers(&Checker::OnCommit, effects.writes);
}

void Coordinator::ReleaseCommitted() {
  while (!turns_.empty() && turns_.front().committed) {
    const core::Effects effects = std::move(turns_.front().effects);
    turns_.pop_front();
    ++first_turn_;
    Release(effects);
  }
}

void Coordinator::Release(const core::Effects& effects) {
  for (const core::Send& send : effects.sends) {
    world_.NotifyCheckers(&Checker::OnSend, send.message, disk_);
    if (send.message.has_welcome()) {
      const auto& [node, incarnation] = workers_.at(send.session);
      world_.NotifyCheckers(&Checker::OnWelcome, node, incarnation);
    }
    const auto session = sessions_.find(send.session);
    if (session == sessions_.end()) continue;
    session->second.stream->ToWorker(
        [deliver = session->second.deliver, message = send.message] { deliver(message); });
  }
  for (const core::Reply& reply : effects.replies) {
    world_.NotifyCheckers(&Checker::OnReply, reply);
    const auto request = requests_.find(reply.request);
    if (request == requests_.end()) continue;
    const auto done = std::move(request->second);
    requests_.erase(request);
    done(reply);
  }
  for (const core::CloseSession& close : effects.closes) {
    auto session = sessions_.extract(close.session);
    if (session.empty()) continue;
    const std::shared_ptr<Stream> stream = session.mapped().stream;
    stream->coordinator_end = nullptr;
    stream->ToWorker([stream, closed = session.mapped().closed, status = close.status] {
      closed(status);
      stream->Break();
    });
  }
}

void Coordinator::ArmTick() {
  const SteadyTime deadline = core_->NextDeadline();
  if (deadline == SteadyTime::Infinite() || deadline >= armed_) return;
  armed_ = deadline;
  const SteadyTime due = std::max(deadline, paused_until_) +
                         world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(3));
  world_.scheduler.At(due, [this, deadline, process = process_] {
    if (process != process_ || !up()) return;
    if (armed_ == deadline) armed_ = SteadyTime::Infinite();
    const SteadyTime now = world_.scheduler.now().steady;
    if (paused_until_ > now) {
      ArmTick();
    } else if (core_->NextDeadline() <= now) {
      Step(core::Tick{now - core_->NextDeadline()});
    }
    if (up()) ArmTick();
  });
}

}  // namespace muster::simulation
