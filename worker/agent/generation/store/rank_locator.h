// Tells the hosted c10d store of another node which ranks of this node its clients are.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_RANK_LOCATOR_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_RANK_LOCATOR_H_

#include <string>
#include <vector>

#include "common/files/owned_fd.h"
#include "common/http/address.h"
#include "common/time/time.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// A connection to the store, over which it asks for the ranks of its clients: see
// worker/c10d_store/protocol.h. Best effort: without it, the store names these clients by their
// addresses. Must be used on the loop's thread.
class RankLocator {
 public:
  // `marks`: entries that the environments of the ranks have.
  RankLocator(EventLoop& loop, Address store, std::vector<std::string> marks)
      : loop_(loop), store_(std::move(store)), marks_(std::move(marks)) {}
  ~RankLocator() { Disconnect(); }
  RankLocator(const RankLocator&) = delete;
  RankLocator& operator=(const RankLocator&) = delete;

  // Connects again if there is no connection. Call it periodically.
  void Tick();

 private:
  void Connect();
  void Disconnect();
  void OnConnected();
  void OnReadable();

  EventLoop& loop_;
  const Address store_;
  const std::vector<std::string> marks_;
  OwnedFd socket_;
  std::string input_;
  SteadyTime retry_at_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_RANK_LOCATOR_H_
