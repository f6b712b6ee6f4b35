// Configuration and token files, and addresses in flags.
#include <string>

#include "absl/status/statusor.h"
#include "cli/identity/identity_files.h"
#include "common/http/address.h"
#include "common/security/local_token.h"
#include "coordinator/scheduler_config.h"
#include "coordinator/service/auth/authorizer.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"

namespace muster {
namespace {

// A setting that is added must be read, and the others must stay.
void EditSettings(const std::string& path) {
  absl::StatusOr<cli::SettingsFile> settings = cli::SettingsFile::Read(path);
  if (!settings.ok()) return;
  const std::string other = settings->Get("MUSTER_COORDINATOR");
  settings->Replace("MUSTER_TOKEN", "new");
  fuzz::CheckOk(settings->Write(), "settings can be written");
  const absl::StatusOr<cli::SettingsFile> again = cli::SettingsFile::Read(path);
  fuzz::CheckOk(again.status(), "written settings can be read");
  fuzz::Check(again->Get("MUSTER_TOKEN") == "new", "a new setting is read",
              again->Get("MUSTER_TOKEN"));
  fuzz::Check(again->Get("MUSTER_COORDINATOR") == other, "other settings stay", other);
}

void ReadTokens(const std::string& path) {
  const absl::StatusOr<std::string> token = security::ReadTokenFile(path);
  fuzz::Check(!token.ok() || !token->empty(), "a token is not empty");
  service::AccessOptions options;
  options.tokens_file = path;
  const auto authorizer = service::Authorizer::Create(options);
  if (!authorizer.ok()) return;
  fuzz::Check(!(*authorizer)->Authenticate({}).ok(), "no file admits callers without a token");
  fuzz::Check(!(*authorizer)->Authenticate({.token = "Bearer "}).ok(),
              "no file admits an empty token");
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const fuzz::TemporaryFolder folder;
  const std::string text = fuzz::Text(data, size);
  ReadTokens(folder.Write("tokens", text));
  ParseSchedulerConfig(text, "scheduler.yaml").IgnoreError();
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (address.ok()) {
    const absl::StatusOr<Address> again = ParseAddress(address->ToString());
    fuzz::Check(again.ok() && again->host == address->host && again->port == address->port,
                "an address prints as one that parses to the same", text);
  }
  EditSettings(folder.Write("settings", text));
  return 0;
}
