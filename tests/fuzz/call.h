// A call of any method, as a client of its own making.
#ifndef MUSTER_TESTS_FUZZ_CALL_H_
#define MUSTER_TESTS_FUZZ_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace muster::fuzz {

// Sends the messages and returns the status. A response to a stream ends it.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  const google::protobuf::MethodDescriptor& method,
                  const std::vector<std::string>& messages, std::chrono::milliseconds deadline);

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_CALL_H_
