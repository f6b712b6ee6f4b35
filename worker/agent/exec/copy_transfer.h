// The worker's end of one copy: sends the output of a tar process.
#ifndef MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_
#define MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/data_directory.h"
#include "worker/agent/exec/transfer.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

class CopyTransfer final : public Transfer, public grpc::ClientWriteReactor<v1::SendFilesRequest> {
 public:
  // `shim_binary` starts tar as the job's user.
  CopyTransfer(TransferHost host, const v1::OpenFiles& open, const DataDirectory& directory,
               std::string node_name, const JobUsers& users, std::string shim_binary);
  ~CopyTransfer() override;

  void Start() override;
  void Cancel() override;

  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  // Starts tar.
  absl::Status Open();
  void OnExit(int exit_code);
  void OnErrorText();
  // Sends the next chunk unless a write is in progress; waits for more, or finishes.
  void Advance();
  void Send(std::string data);
  void Finish();
  void Close(int& fd);

  TransferHost host_;
  const v1::OpenFiles open_;
  const DataDirectory& directory_;
  const std::string node_name_;
  const JobUsers& users_;
  const std::string shim_binary_;
  std::string path_;  // path of the source
  pid_t tar_ = -1;    // until it has been reaped
  int out_ = -1;
  int err_ = -1;
  std::string error_text_;
  std::optional<int> exit_code_;
  bool named_ = false;  // the first message, which names the transfer, has been sent
  bool writing_ = false;
  bool broken_ = false;
  bool finished_ = false;
  // For the exit callback, which may outlive this object.
  const std::shared_ptr<CopyTransfer*> self_;
  grpc::ClientContext context_;
  v1::SendFilesRequest outgoing_;
  v1::SendFilesResponse response_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_
