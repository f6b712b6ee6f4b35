#include "worker/agent/rank/directives.h"

#include <utility>

namespace muster::agent {

Directives::~Directives() {
  for (auto& [id, watcher] : watchers_) {
    watcher.done(absl::UnavailableError("the worker is shutting down"));
  }
}

bool Directives::Stop(const v1::Directive& directive) {
  if (stopping() && last_->SerializeAsString() == directive.SerializeAsString()) return false;
  last_ = directive;
  const auto watchers = watchers_;
  for (const auto& [id, watcher] : watchers) watcher.on_directive(directive);
  return true;
}

void Directives::RequestCheckpoint() {
  if (stopping()) return;
  v1::Directive directive;
  directive.set_kind(v1::Directive::CHECKPOINT);
  const auto watchers = watchers_;
  for (const auto& [id, watcher] : watchers) {
    if (watcher.rank == 0) watcher.on_directive(directive);
  }
}

void Directives::Watch(CallId id, Watcher watcher) {
  if (last_.has_value()) watcher.on_directive(*last_);
  if (ended_) return watcher.done(absl::OkStatus());
  if (watchers_.size() >= max_watchers_) {
    return watcher.done(absl::ResourceExhaustedError("too many watches in one generation"));
  }
  watchers_.emplace(id, std::move(watcher));
}

void Directives::Cancel(CallId id) {
  const auto it = watchers_.find(id);
  if (it == watchers_.end()) return;
  const auto done = std::move(it->second.done);
  watchers_.erase(it);
  done(absl::CancelledError("the caller has cancelled"));
}

void Directives::End() {
  ended_ = true;
  for (auto& [id, watcher] : std::exchange(watchers_, {})) watcher.done(absl::OkStatus());
}

}  // namespace muster::agent
