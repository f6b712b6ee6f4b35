// The worker's end of one exec: relays between the coordinator's stream and the command.
#ifndef MUSTER_WORKER_AGENT_EXEC_EXEC_TRANSFER_H_
#define MUSTER_WORKER_AGENT_EXEC_EXEC_TRANSFER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/exec/exec_process.h"
#include "worker/agent/session/transfers.h"

namespace muster::agent {

// One message is in flight in each direction: output is read from the command after the previous
// one has been sent, and input from the stream after the command has accepted the previous one.
class ExecTransfer final
    : public StreamTransfer<grpc::ClientBidiReactor<v1::ServeExecRequest, v1::ExecInput>,
                            v1::ServeExecRequest> {
 public:
  ExecTransfer(TransferHost host, const v1::OpenExec& open, std::string shim_binary,
               std::string rank_directory);

  void Start() override;
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) override;

  void OnReadDone(bool ok) override;

 private:
  void OnRead(bool ok);
  void OnExit(int exit_code);
  void Receive();
  void ReadNext();
  void Advance() override;
  // The next output of the command; nothing if there is none at present.
  std::optional<v1::ExecOutput> NextOutput();
  void Send(v1::ExecOutput output);

  const v1::OpenExec open_;
  const std::string shim_binary_;
  const std::string rank_directory_;
  std::unique_ptr<ExecProcess> process_;
  std::optional<int> exit_code_;
  bool out_ended_ = false;
  bool err_ended_ = false;
  bool sent_exit_code_ = false;
  // For the exit callback, which may outlive this object.
  const std::shared_ptr<ExecTransfer*> self_;
  v1::ExecInput incoming_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_EXEC_TRANSFER_H_
