// This worker's side of its session with the coordinator.
#ifndef MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CLIENT_H_
#define MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CLIENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/exec/transfer_server.h"
#include "worker/agent/generation/devices.h"
#include "worker/agent/generation/generation_table.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/lease/leases.h"
#include "worker/agent/logs/log_server.h"
#include "worker/agent/metrics.h"
#include "worker/agent/rank/progress_board.h"
#include "worker/agent/self_test.h"
#include "worker/agent/session/membership.h"
#include "worker/agent/session/session.h"
#include "worker/agent/storage/sweeper.h"

namespace muster::agent {

// Describes the worker to the coordinator, dispatches the coordinator's messages to the components
// that carry them out, and sends the worker's messages. Must be created on the agent's loop, so
// that the first messages can be answered, and destroyed outside it; the other methods must be
// called on it.
class CoordinatorClient {
 public:
  // The components must outlive the client.
  struct Context {
    std::string coordinator;  // HOST:PORT
    security::ClientSecurity security;
    v1::Hello hello;  // its fields that are the same in all sessions
    EventLoop& loop;
    ProgressBoard& board;
    WorkerStatus& status;
    Membership& membership;
    LeaseLines& lease_lines;
    Leases& leases;
    Devices& devices;
    GenerationTable& table;
    Sweeper& sweeper;
    LogServer& logs;
    TransferServer& transfers;
    std::unique_ptr<SelfTester> self_tester;  // null once the shutdown has begun
    // Called on the loop if the coordinator will never accept this worker, see Session::Events.
    std::function<void(const absl::Status&)> on_failure;
  };

  explicit CoordinatorClient(Context context);

  // Drops the message while there is no session and during a conflict (Membership): the next Hello
  // contains the full state.
  void Send(v1::WorkerMessage message);
  // Reports, in later sessions too, that the worker is leaving.
  void Leave();
  // Called periodically: ends a conflict with a new session once no rank is left.
  void Tick();
  // Must be called before the client is destroyed. Until then, a session that breaks is still
  // reopened, but messages are dropped, and requests that are not about generations are ignored.
  void BeginShutdown();

 private:
  Session::Events MakeEvents();
  v1::Hello MakeHello();
  void OnWelcome(const v1::Welcome& welcome);
  void OnMessage(const v1::CoordinatorMessage& message);
  // Handles a message that is not about a generation.
  void Serve(const v1::CoordinatorMessage& message);
  void SendJobRecords();
  void OpenLog(v1::OpenLog open);
  void OpenExec(const v1::OpenExec& open);
  // Deletes the logs and directories of a job that was removed.
  void DeleteFiles(const std::string& job_id);

  Context context_;
  // Whether the session's coordinator decides on the ranks of this node: only then do its
  // acknowledgements extend their leases.
  std::atomic<bool> extends_leases_ = false;
  bool leaving_ = false;
  bool stopping_ = false;
  std::string address_;  // as in GenerationTable::SetAddress
  std::string interface_;
  Session session_;  // declared last: its events use the members above until it is destroyed
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SESSION_COORDINATOR_CLIENT_H_
