// The streams that upload and fetch files. File operations run on the file thread; no other thread
// waits for them.
#ifndef MUSTER_COORDINATOR_SERVICE_FILE_CALLS_H_
#define MUSTER_COORDINATOR_SERVICE_FILE_CALLS_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/files/file_store.h"
#include "coordinator/files/file_thread.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// The store, which is used on `thread` only. Outlives the server.
struct FileAccess {
  std::unique_ptr<files::FileStore> store;
  std::function<Time()> clock;
  files::FileThread thread;
};

// Both calls own themselves until they are done.
grpc::ServerReadReactor<v1::UploadFileRequest>* StartUploadFile(
    FileAccess& files, absl::StatusOr<core::Actor> uploader);
grpc::ServerWriteReactor<v1::FetchFileResponse>* StartFetchFile(
    FileAccess& files, const v1::FetchFileRequest& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_FILE_CALLS_H_
