#include "common/security/client_security.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/security/local_token.h"
#include "common/status.h"

namespace muster::security {

absl::StatusOr<ClientToken> FindToken(const ClientSecurity& security, const std::string& target) {
  if (!security.token_file.empty()) {
    ASSIGN_OR_RETURN(std::string token, ReadTokenFile(security.token_file));
    return ClientToken{std::move(token), absl::StrCat("the token in ", security.token_file)};
  }
  if (!security.token.empty()) return ClientToken{security.token, "the token in MUSTER_TOKEN"};
  if (security.has_node_certificate) {
    return absl::NotFoundError("this client has a node's certificate and uses no token");
  }
  ASSIGN_OR_RETURN(FoundToken found, FindLocalToken(target));
  return ClientToken{std::move(found.token), absl::StrCat("the token in ", found.path)};
}

absl::Status CheckClientSecurity(const ClientSecurity& security) {
  RETURN_IF_ERROR(CheckTlsFiles(security.tls));
  if (!security.tls.cert.empty() && security.tls.ca.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert needs --tls-ca, the CA certificate used to verify the coordinator");
  }
  if (security.token_file.empty()) return absl::OkStatus();
  return Annotate(ReadTokenFile(security.token_file).status(), "--token-file");
}

absl::Status Explain(const absl::Status& status, const ClientSecurity& security,
                     const std::string& target) {
  const absl::string_view remedy =
      "pass one with --token-file or MUSTER_TOKEN_FILE; the coordinator stores its token in "
      "DATA_DIR/token";
  // gRPC returns the latter for a channel without credentials, whose files could not be read.
  if (absl::IsUnavailable(status) || status.message() == "Invalid credentials.") {
    const absl::Status usable = CheckTlsFiles(security.tls);
    if (!usable.ok()) return absl::UnauthenticatedError(usable.message());
    const absl::Status verdict = ProbeTls(target, security.tls);
    return verdict.ok() ? status : verdict;
  }
  const absl::StatusOr<ClientToken> token = FindToken(security, target);
  if (absl::IsUnauthenticated(status)) {
    if (!token.ok()) {
      return absl::UnauthenticatedError(absl::StrCat(
          "the coordinator at ", target,
          " requires a token, but none was found: ", token.status().message(), "; ", remedy));
    }
    return absl::UnauthenticatedError(
        absl::StrCat("the coordinator at ", target, " rejected ", token->source, "; ", remedy));
  }
  if (absl::IsPermissionDenied(status) && token.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat(status.message(), "; the call used ", token->source));
  }
  return status;
}

}  // namespace muster::security
