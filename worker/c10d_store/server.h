// Serves a store over TCP, and reports its state in the status file.
#ifndef MUSTER_WORKER_C10D_STORE_SERVER_H_
#define MUSTER_WORKER_C10D_STORE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/c10d_store/local_peers.h"
#include "worker/c10d_store/protocol.h"
#include "worker/c10d_store/roster.h"
#include "worker/c10d_store/status_file.h"
#include "worker/c10d_store/store.h"

namespace muster::c10d_store {

struct ServerOptions {
  std::vector<int> listeners;  // nonblocking; owned by the server
  uint16_t port = 0;
  uint32_t world_size = 1;
  // Entries that the environments of the job's ranks have; see FindLocalRanks.
  std::vector<std::string> marks;
  std::string status_path;
};

// A single-threaded epoll loop. Must be used on one thread.
class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Writes the first status. False, with errno set, on failure.
  bool Start();
  // Waits up to `timeout_ms` for events (-1: until the next tick), and handles them.
  void Poll(int timeout_ms);

 private:
  struct Connection {
    int fd = -1;
    Endpoint peer;
    RequestDecoder decoder;
    std::string output;       // not sent yet; meanwhile, no further requests are read
    bool is_writing = false;  // waits until the socket accepts more
  };
  using Connections = std::map<ConnectionId, Connection>;

  void Accept(int listener);
  void OnEvents(ConnectionId id, uint32_t events);
  void Read(ConnectionId id);
  // Handles the requests that have been read, until there is output that cannot be sent.
  void HandleRequests(ConnectionId id);
  void Send(ConnectionId id, const std::string& bytes);
  void OnWorkerRequest(ConnectionId id, const WorkerRequest& request);
  // Sends the output that the socket accepts. False if the connection is broken.
  bool Flush(ConnectionId id);
  void Close(ConnectionId id);
  void Refuse(ConnectionId id, const std::string& reason);

  // Time until the next tick; -1: none is needed.
  int TickDelayMs(int64_t now_ms) const;
  void Tick(int64_t now_ms);
  // Searches for the ranks of unknown clients.
  void Identify();
  // Asks the workers of other nodes for those of the unknown clients.
  void AskWorkers();
  void WriteStatus();
  void SetAccepting(bool accepting);

  const ServerOptions options_;
  int epoll_ = -1;
  Store store_;
  Roster roster_;
  Connections connections_;
  std::vector<ConnectionId> broken_;  // to be closed
  std::set<ConnectionId> workers_;    // connections of workers of other nodes
  Status status_;                     // as written
  bool accepting_ = true;             // false while the process has no descriptors left
  int64_t ticked_ms_ = 0;
  int64_t identify_at_ms_ = 0;
  int64_t identify_interval_ms_ = 0;
};

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_SERVER_H_
