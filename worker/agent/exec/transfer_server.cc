#include "worker/agent/exec/transfer_server.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/agent/exec/copy_transfer.h"
#include "worker/agent/exec/exec_transfer.h"

namespace muster::agent {

TransferServer::TransferServer(Options options, const DataDirectory& directory)
    : options_(std::move(options)),
      directory_(directory),
      transfers_({"transfers", options_.coordinator, options_.security, limits::kTransfers,
                  absl::StrCat("node ", options_.node_name, " has ", limits::kTransfers,
                               " open transfers, the limit"),
                  absl::StrCat("node ", options_.node_name, " cannot open a stream"),
                  options_.refuse}) {}

void TransferServer::OpenExec(const v1::OpenExec& open, bool live) {
  const auto make = [this, open,
                     live](TransferHost host) -> absl::StatusOr<std::unique_ptr<Transfer>> {
    RETURN_IF_ERROR(CheckJobId(open.job_id()));
    if (!live) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", open.start().rank(), " of job ",
                                                        open.job_id(), " does not run on node ",
                                                        options_.node_name));
    }
    return std::make_unique<ExecTransfer>(
        std::move(host), open, options_.shim_binary,
        directory_.Rank(open.job_id(), open.generation(), open.start().rank()));
  };
  transfers_.loop().Post([this, id = open.transfer(), make] { transfers_.Start(id, make); });
}

void TransferServer::OpenFiles(const v1::OpenFiles& open) {
  const auto make = [this, open](TransferHost host) -> absl::StatusOr<std::unique_ptr<Transfer>> {
    return std::make_unique<CopyTransfer>(std::move(host), open, directory_, options_.node_name,
                                          options_.job_users, options_.shim_binary);
  };
  transfers_.loop().Post([this, id = open.transfer(), make] { transfers_.Start(id, make); });
}

void TransferServer::Close(uint64_t transfer) {
  transfers_.loop().Post([this, transfer] { transfers_.Close(transfer); });
}

void TransferServer::CloseAll() {
  transfers_.loop().Post([this] { transfers_.CloseAll(); });
}

void TransferServer::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  transfers_.loop().Post(
      [this, job_id, generation, rank] { transfers_.OnRankExited(job_id, generation, rank); });
}

}  // namespace muster::agent
