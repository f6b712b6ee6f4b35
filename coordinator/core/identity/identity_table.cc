#include "coordinator/core/identity/identity_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

v1::CertificateRecord* Find(v1::IdentityRecord& record, const std::string& serial) {
  const auto found = std::find_if(
      record.mutable_certificates()->begin(), record.mutable_certificates()->end(),
      [&serial](const v1::CertificateRecord& known) { return known.serial() == serial; });
  return found == record.mutable_certificates()->end() ? nullptr : &*found;
}

}  // namespace

void IdentityTable::Handle(const CreateJoinToken& event) { Reply(event.request, Create(event)); }
void IdentityTable::Handle(const RevokeJoinToken& event) { Reply(event.request, Revoke(event)); }
void IdentityTable::Handle(const EnrollNode& event) { Reply(event.request, Enroll(event)); }
void IdentityTable::Handle(const RenewNode& event) { Reply(event.request, Renew(event)); }

void IdentityTable::Reply(RequestId request, const absl::Status& status) {
  if (status.ok()) {
    context_.effects.replies.push_back({request, v1::Job()});
  } else {
    context_.effects.replies.push_back({request, status});
  }
}

// ------------------------------------------------------------------------------------------------
// join tokens

absl::Status IdentityTable::Create(const CreateJoinToken& event) {
  RemoveExpiredTokens();
  if (tokens_.size() >= limits::kJoinTokens) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", tokens_.size(),
                     " join tokens, the limit; revoke some: muster node token --list"));
  }
  v1::JoinTokenRecord& record = tokens_[event.id];
  record.set_id(event.id);
  record.set_digest(event.digest);
  *record.mutable_expire_time() = ToProto(event.expire_time);
  record.set_uses_left(event.uses);
  record.set_node(event.node.value());
  record.set_created_by(event.actor.name);
  context_.effects.writes.push_back(Put(record));
  context_.Log(DoneBy(absl::StrCat("join token ", event.id, " was created"), event.actor));
  return absl::OkStatus();
}

absl::Status IdentityTable::Revoke(const RevokeJoinToken& event) {
  if (tokens_.erase(event.id) == 0) {
    return absl::NotFoundError(absl::StrCat("no join token ", event.id));
  }
  context_.effects.writes.push_back(DeleteJoinToken(event.id));
  context_.Log(DoneBy(absl::StrCat("join token ", event.id, " was revoked"), event.actor));
  return absl::OkStatus();
}

void IdentityTable::RemoveExpiredTokens() {
  for (auto token = tokens_.begin(); token != tokens_.end();) {
    if (FromProto(token->second.expire_time()) > context_.now.wall) {
      ++token;
      continue;
    }
    context_.effects.writes.push_back(DeleteJoinToken(token->first));
    token = tokens_.erase(token);
  }
}

v1::ListJoinTokensResponse IdentityTable::ListTokens(Time now) const {
  v1::ListJoinTokensResponse response;
  for (const auto& [id, record] : tokens_) {
    if (FromProto(record.expire_time()) <= now.wall) continue;
    v1::JoinToken& token = *response.add_tokens();
    token.set_id(id);
    *token.mutable_expire_time() = record.expire_time();
    token.set_uses_left(record.uses_left());
    token.set_node(record.node());
    token.set_created_by(record.created_by());
  }
  return response;
}

// ------------------------------------------------------------------------------------------------
// certificates

absl::Status IdentityTable::Enroll(const EnrollNode& event) {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&event](const auto& token) {
    return token.second.digest() == event.token_digest;
  });
  if (found == tokens_.end()) {
    return absl::UnauthenticatedError(
        "the join token is unknown or was revoked; muster node token creates one");
  }
  v1::JoinTokenRecord& token = found->second;
  const absl::Time expire_time = FromProto(token.expire_time());
  if (expire_time <= context_.now.wall) {
    return absl::UnauthenticatedError(absl::StrCat("join token ", token.id(), " expired at ",
                                                   TimeText(expire_time),
                                                   "; muster node token creates one"));
  }
  if (token.uses_left() == 0) {
    return absl::UnauthenticatedError(
        absl::StrCat("join token ", token.id(), " is used up; muster node token creates one"));
  }
  const std::string& node = event.node.value();
  if (!token.node().empty() && token.node() != node) {
    return absl::PermissionDeniedError(absl::StrCat("join token ", token.id(), " is for node ",
                                                    token.node(), ", not for node ", node));
  }
  if (Has(event.node) && token.node().empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat("node ", node,
                     " has an identity already; create a token for it with muster node token "
                     "--node ",
                     node, ", or end its identity with muster node remove ", node));
  }
  token.set_uses_left(token.uses_left() - 1);
  context_.effects.writes.push_back(Put(token));
  v1::IdentityRecord& record = identities_[node];
  record.set_node(node);
  record.set_machine_id(event.machine_id);
  // Whoever has the key of an earlier certificate is replaced.
  RevokeCertificates(record);
  AddCertificate(record, event.serial, event.expire_time);
  Store(record);
  context_.Log(absl::StrCat("node ", node, " joined with token ", token.id(), " and certificate ",
                            event.serial));
  return absl::OkStatus();
}

absl::Status IdentityTable::Renew(const RenewNode& event) {
  const absl::Status valid = CheckNotRevoked(event.current);
  if (!valid.ok()) return valid;
  v1::IdentityRecord& record = identities_[event.current.node];
  record.set_node(event.current.node);
  record.set_machine_id(event.current.machine_id);
  if (Find(record, event.current.serial) == nullptr) {
    AddCertificate(record, event.current.serial, event.current.expire_time);
  }
  AddCertificate(record, event.serial, event.expire_time);
  Store(record);
  context_.Log(absl::StrCat("certificate ", event.current.serial, " of node ", event.current.node,
                            " was renewed as ", event.serial));
  return absl::OkStatus();
}

absl::Status IdentityTable::CheckNotRevoked(const security::NodeCertificate& certificate) const {
  const auto identity = identities_.find(certificate.node);
  if (identity == identities_.end()) return absl::OkStatus();
  for (const v1::CertificateRecord& known : identity->second.certificates()) {
    if (known.serial() != certificate.serial || !known.revoked()) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("certificate ", certificate.serial, " of node ", certificate.node,
                     " was revoked; join again with a token of muster node token"));
  }
  return absl::OkStatus();
}

absl::Status IdentityTable::Admit(const SessionOpened& event) {
  const std::string& node = event.hello.node_name();
  if (!event.certificate.has_value()) {
    if (banned_.count(Incarnation(event.hello.incarnation())) != 0) {
      return absl::PermissionDeniedError(
          absl::StrCat("node ", node,
                       " was removed; join again with a token of muster node token, or restart "
                       "this worker if its token is still to be accepted"));
    }
    if (!Has(NodeName(node))) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        "node ", node,
        " has an identity, and its worker has not presented its certificate; start it with "
        "--tls-cert and --tls-key, or end the identity with muster node remove ",
        node));
  }
  const security::NodeCertificate& certificate = *event.certificate;
  if (certificate.node != node) {
    return absl::PermissionDeniedError(
        absl::StrCat("the worker presents the certificate of node ", certificate.node,
                     ", but registers as node ", node, "; start it with --name=", certificate.node,
                     ", or join as ", node));
  }
  if (!certificate.machine_id.empty() && certificate.machine_id != event.hello.machine_id()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the certificate of node ", node, " is for machine ", certificate.machine_id,
        ", but the worker runs on machine ", event.hello.machine_id(), "; join on that machine"));
  }
  const absl::Status valid = CheckNotRevoked(certificate);
  if (!valid.ok()) return valid;
  v1::IdentityRecord& record = identities_[node];
  if (Find(record, certificate.serial) != nullptr) return absl::OkStatus();
  record.set_node(node);
  record.set_machine_id(certificate.machine_id);
  AddCertificate(record, certificate.serial, certificate.expire_time);
  Store(record);
  return absl::OkStatus();
}

bool IdentityTable::Has(const NodeName& node) const {
  const auto identity = identities_.find(node.value());
  return identity != identities_.end() && !identity->second.removed();
}

void IdentityTable::Remove(const NodeName& node) {
  if (!Has(node)) return;
  v1::IdentityRecord& record = identities_.at(node.value());
  RevokeCertificates(record);
  record.set_removed(true);
  Store(record);
}

void IdentityTable::AddCertificate(v1::IdentityRecord& record, const std::string& serial,
                                   absl::Time expire_time) {
  record.set_removed(false);
  v1::CertificateRecord& certificate = *record.add_certificates();
  certificate.set_serial(serial);
  *certificate.mutable_expire_time() = ToProto(expire_time);
}

void IdentityTable::RevokeCertificates(v1::IdentityRecord& record) {
  for (v1::CertificateRecord& certificate : *record.mutable_certificates()) {
    if (certificate.revoked()) continue;
    certificate.set_revoked(true);
    context_.effects.revoked_certificates.push_back(certificate.serial());
  }
}

void IdentityTable::Store(v1::IdentityRecord& record) {
  auto& certificates = *record.mutable_certificates();
  certificates.erase(std::remove_if(certificates.begin(), certificates.end(),
                                    [this](const v1::CertificateRecord& certificate) {
                                      return FromProto(certificate.expire_time()) <=
                                             context_.now.wall;
                                    }),
                     certificates.end());
  if (!record.removed() || !certificates.empty()) {
    context_.effects.writes.push_back(Put(record));
    return;
  }
  const std::string node = record.node();
  context_.effects.writes.push_back(DeleteIdentity(node));
  identities_.erase(node);
}

// ------------------------------------------------------------------------------------------------
// recovery

void IdentityTable::Restore(v1::IdentityRecord record) {
  for (const v1::CertificateRecord& certificate : record.certificates()) {
    if (certificate.revoked()) {
      context_.effects.revoked_certificates.push_back(certificate.serial());
    }
  }
  const std::string node = record.node();
  v1::IdentityRecord& restored = identities_[node] = std::move(record);
  if (restored.removed()) Store(restored);
}

void IdentityTable::Restore(v1::JoinTokenRecord record) {
  const std::string id = record.id();
  tokens_[id] = std::move(record);
}

}  // namespace muster::core
