// The worker's end of one copy: sends the output of a tar process.
#ifndef MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_
#define MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/files/owned_fd.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/job_user.h"
#include "worker/agent/session/transfers.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

class CopyTransfer final
    : public StreamTransfer<grpc::ClientWriteReactor<v1::SendFilesRequest>, v1::SendFilesRequest> {
 public:
  // `shim_binary` starts tar as the job's user.
  CopyTransfer(TransferHost host, const v1::OpenFiles& open, const DataDirectory& directory,
               std::string node_name, const JobUsers& users, std::string shim_binary);
  ~CopyTransfer() override;

  void Start() override;

 private:
  absl::Status StartTar();
  void OnExit(int exit_code);
  void OnErrorText();
  void Advance() override;
  void Send(std::string data);
  void Close(OwnedFd& fd);

  const v1::OpenFiles open_;
  const DataDirectory& directory_;
  const std::string node_name_;
  const JobUsers& users_;
  const std::string shim_binary_;
  std::string path_;  // path of the source
  pid_t tar_ = -1;    // until it has been reaped
  OwnedFd out_;
  OwnedFd err_;
  std::string error_text_;
  std::optional<int> exit_code_;
  // For the exit callback, which may outlive this object.
  const std::shared_ptr<CopyTransfer*> self_;
  v1::SendFilesResponse response_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_COPY_TRANSFER_H_
