// The secrets in the coordinator's store. Values leave the coordinator only in launches of their
// owner's jobs.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_SECRET_TABLE_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_SECRET_TABLE_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class SecretTable {
 public:
  explicit SecretTable(Context& context) : context_(context) {}

  // Sets or removes a secret of the actor, and replies. Errors: INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED.
  void Handle(const SetSecret& event);
  // The names of the actor's secrets; those of all owners for an admin.
  v1::ListSecretsResponse List(const Actor& actor) const;
  // Adds those secrets of the owner that the spec names to the launch.
  void AddTo(const std::string& owner, const v1::JobSpec& spec, v1::Launch& launch) const;

  void Restore(v1::SecretRecord record);

 private:
  absl::Status Set(const SetSecret& event);

  Context& context_;
  std::map<std::pair<std::string, std::string>, std::string> secrets_;  // by owner and name
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_SECRET_TABLE_H_
