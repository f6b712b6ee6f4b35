#include "coordinator/service/relay/send_files_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"

namespace muster::service {

absl::StatusOr<std::optional<v1::ArchiveChunk>> SendFilesCall::TakeOutput(
    v1::SendFilesRequest& request) {
  if (!request.has_chunk()) return std::nullopt;
  if (request.chunk().data().size() > limits::kLogChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", request.chunk().data().size(),
                                                   " bytes; the limit is ",
                                                   limits::kLogChunkBytes));
  }
  return std::move(*request.mutable_chunk());
}

void SendFilesCall::End(absl::Status status) {
  if (std::exchange(finished_, true)) return;
  Finish(ToGrpcStatus(status));
}

}  // namespace muster::service
