// The streams that upload and fetch files. File operations run on the file thread; no other thread
// waits for them.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_FILE_CALLS_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_FILE_CALLS_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/files/file_store.h"
#include "coordinator/files/file_thread.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/loop/core_loop.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// An upload that receives nothing for this time is ended.
inline constexpr absl::Duration kUploadTimeout = absl::Seconds(30);

class UploadFileCall;

// The store and the uploads, which are used on `thread` only. Outlives the server.
struct FileAccess {
  std::unique_ptr<files::FileStore> store;
  std::function<Time()> clock;
  std::set<UploadFileCall*> uploads;
  SteadyTime counted;  // when Recount last counted the files of owners
  files::FileThread thread;
};

// Both calls own themselves until they are done. A worker fetches the files of running jobs: on
// `node`, if its certificate names one. For other files, it gets the error of a file that is not
// stored.
grpc::ServerReadReactor<v1::UploadFileRequest>* StartUploadFile(
    FileAccess& files, CoreLoop& loop, absl::StatusOr<AdmittedCaller> uploader);
grpc::ServerWriteReactor<v1::FetchFileResponse>* StartFetchFile(
    FileAccess& files, CoreLoop& loop, std::optional<NodeName> node,
    const v1::FetchFileRequest& request);

// Counts the files of each owner again, with those of the jobs of now, and calls `then` with true;
// with false, if they were counted within the last second or the coordinator is shutting down.
// Called on the file thread, as `then` is.
void Recount(FileAccess& files, CoreLoop& loop, absl::AnyInvocable<void(bool)> then);

// Ends the uploads that have received nothing for kUploadTimeout. Called on the file thread.
void EndStalledUploads(FileAccess& files, SteadyTime now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_FILE_CALLS_H_
