#include "coordinator/service/relay/read_files_call.h"

#include <memory>

#include "common/status.h"

namespace muster::service {

ReadFilesCall* ReadFilesCall::Start(absl::StatusOr<AdmittedCaller> caller,
                                    const v1::ReadFilesRequest& request, CoreLoop& loop,
                                    TransferTable<v1::ArchiveChunk>& transfers) {
  absl::Status status = caller.status();
  std::shared_ptr<ReadFilesCall> call(new ReadFilesCall(
      caller.ok() ? *std::move(caller) : AdmittedCaller(), request, loop, transfers));
  call->Own();
  if (status.ok()) status = call->Begin();
  if (!status.ok()) call->End(status);
  return call.get();
}

absl::StatusOr<ReadFilesCall::Location> ReadFilesCall::Locate(const core::Core& core,
                                                              const Time& now) {
  ASSIGN_OR_RETURN(const v1::Job job, FindJob(core, request_.job_id(), now));
  ASSIGN_OR_RETURN(
      Location location,
      core.FindRank(JobId(job.job_id()), Generation(request_.generation()), Rank(request_.rank())));
  request_.set_job_id(job.job_id());
  request_.set_generation(location.generation.value());
  return location;
}

v1::CoordinatorMessage ReadFilesCall::Request(TransferId id, const Location& /*location*/) {
  v1::CoordinatorMessage message;
  message.mutable_open_files()->set_transfer(id.value());
  *message.mutable_open_files()->mutable_request() = request_;
  return message;
}

}  // namespace muster::service
