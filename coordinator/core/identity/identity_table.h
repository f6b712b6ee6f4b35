// The nodes' identities and the join tokens for new ones.
//
// A node has an identity from its first certificate until it is removed. Its worker must present a
// certificate, and a certificate is good for one name only, on one machine.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_IDENTITY_IDENTITY_TABLE_H_
#define MUSTER_COORDINATOR_CORE_IDENTITY_IDENTITY_TABLE_H_

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

class IdentityTable {
 public:
  explicit IdentityTable(Context& context) : context_(context) {}

  // Each of them replies. The errors of EnrollNode and RenewNode are those of IdentityService.
  void Handle(const CreateJoinToken& event);  // RESOURCE_EXHAUSTED
  void Handle(const RevokeJoinToken& event);  // NOT_FOUND
  void Handle(const EnrollNode& event);
  void Handle(const RenewNode& event);

  // Checks that the worker may register under its name. A certificate that was issued elsewhere is
  // recorded, so that Remove revokes it. Errors: PERMISSION_DENIED.
  absl::Status Admit(const SessionOpened& event);

  bool Has(const NodeName& node) const;
  // Revokes the certificates of the node and makes its name free.
  void Remove(const NodeName& node);
  // Admits this worker only with a certificate, until the coordinator restarts.
  void Ban(Incarnation worker) { banned_.insert(worker); }

  // The tokens that have not expired.
  v1::ListJoinTokensResponse ListTokens(Time now) const;

  void Restore(v1::IdentityRecord record);
  void Restore(v1::JoinTokenRecord record);

 private:
  absl::Status Create(const CreateJoinToken& event);
  absl::Status Revoke(const RevokeJoinToken& event);
  absl::Status Enroll(const EnrollNode& event);
  absl::Status Renew(const RenewNode& event);
  absl::Status CheckNotRevoked(const security::NodeCertificate& certificate) const;
  void Reply(RequestId request, const absl::Status& status);
  void AddCertificate(v1::IdentityRecord& record, const std::string& serial,
                      absl::Time expire_time);
  void RevokeCertificates(v1::IdentityRecord& record);
  // Writes the record without certificates that have expired.
  void Store(v1::IdentityRecord& record);
  void RemoveExpiredTokens();

  Context& context_;
  std::map<std::string, v1::IdentityRecord> identities_;  // by node
  std::map<std::string, v1::JoinTokenRecord> tokens_;     // by id
  std::set<Incarnation> banned_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_IDENTITY_IDENTITY_TABLE_H_
