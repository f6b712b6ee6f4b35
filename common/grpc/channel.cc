#include "common/grpc/channel.h"

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/log.h"
#include "common/limits.h"
#include "common/security/call_metadata.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/client_interceptor.h"

namespace muster {
namespace {

using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;

class AddMetadata final : public grpc::experimental::Interceptor {
 public:
  AddMetadata(const std::string& target, const security::ClientSecurity& security)
      : target_(target), security_(security) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      auto& metadata = *methods->GetSendInitialMetadata();
      metadata.emplace(security::kProtocolVersionKey, absl::StrCat(security_.protocol_version));
      metadata.emplace(security::kNewestProtocolVersionKey,
                       absl::StrCat(security_.newest_protocol_version));
      metadata.emplace(security::kSoftwareVersionKey, security_.software_version);
      const absl::StatusOr<security::ClientToken> found = FindToken(security_, target_);
      if (found.ok()) {
        metadata.emplace(security::kTokenKey, absl::StrCat(security::kTokenPrefix, found->token));
      }
    }
    methods->Proceed();
  }

 private:
  // Owned by the factory, which lives as long as the channel.
  const std::string& target_;
  const security::ClientSecurity& security_;
};

class AddMetadataFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  AddMetadataFactory(std::string target, security::ClientSecurity security)
      : target_(std::move(target)), security_(std::move(security)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new AddMetadata(target_, security_);
  }

 private:
  const std::string target_;
  const security::ClientSecurity security_;
};

// Null if a file cannot be read: then every call fails, rather than being sent in plaintext.
std::shared_ptr<grpc::ChannelCredentials> Credentials(const security::TlsFiles& files) {
  if (files.ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  const auto read = [](const std::string& path, std::string& text) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    return !text.empty();
  };
  if (!read(files.ca, options.pem_root_certs)) return nullptr;
  if (!files.cert.empty() &&
      (!read(files.cert, options.pem_cert_chain) || !read(files.key, options.pem_private_key))) {
    return nullptr;
  }
  return grpc::SslCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target,
                                           grpc::ChannelArguments arguments,
                                           const security::ClientSecurity& security) {
  // Suppress gRPC's own messages: security::Explain describes failures to the user.
  TakeGrpcLog([](const std::string&) {});
  arguments.SetMaxReceiveMessageSize(limits::kMessageBytes);
  arguments.SetMaxSendMessageSize(limits::kMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!security.server_name.empty()) arguments.SetSslTargetNameOverride(security.server_name);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<AddMetadataFactory>(target, security));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      target, Credentials(security.tls), arguments, std::move(interceptors));
}

}  // namespace muster
