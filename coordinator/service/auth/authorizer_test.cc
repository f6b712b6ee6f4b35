#include "coordinator/service/auth/authorizer.h"

#include <grpcpp/generic/generic_stub.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/grpc/channel.h"
#include "common/sha256.h"
#include "common/version.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLocalToken[] = "local-token-of-a-test";
constexpr char kViewToken[] = "view-token-0123456";
constexpr char kSubmitToken[] = "submit-token-01234";
constexpr char kWorkerToken[] = "worker-token-01234";

std::string FullName(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

class AuthorizerTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = ::testing::TempDir() + "/tokens." + std::to_string(getpid()); }
  void TearDown() override { std::filesystem::remove(file_); }
  void WriteTokens(const std::string& text, mode_t mode = 0600) {
    const std::string beside = file_ + ".new";
    std::ofstream(beside) << text;
    chmod(beside.c_str(), mode);
    std::filesystem::rename(beside, file_);
  }
  absl::StatusOr<std::unique_ptr<Authorizer>> Create() {
    AccessOptions options;
    options.local_token = kLocalToken;
    options.tokens_file = file_;
    return Authorizer::Create(options, [this] { return now_; });
  }
  static absl::Status Check(Authorizer& authorizer, const std::string& method,
                            const std::string& token) {
    Authorizer::Caller caller;
    caller.token = "Bearer " + token;
    return authorizer.Check("/muster.v1." + method, caller);
  }

  std::string file_;
  Time now_;
};

TEST_F(AuthorizerTest, EveryMethodHasARole) {
  for (const auto* method : AllMethods()) {
    EXPECT_NE(FindMethod(FullName(*method)), nullptr)
        << FullName(*method) << " has no option `access`, so no role may call it";
  }
  for (const char* name : {"/muster.v1.ClusterService/Unheard", "muster.v1.ClusterService.GetJob",
                           "/muster.v1.PeerService/AskLease", "/", ""}) {
    EXPECT_EQ(FindMethod(name), nullptr) << name;
  }
}

TEST_F(AuthorizerTest, RolesIncludeLowerRoles) {
  WriteTokens(
      "# people\n"
      "view    view-token-0123456 alice\n"
      "submit\tsubmit-token-01234\n"
      "\n"
      "admin admin-token-012345 carol\n"
      "worker worker-token-01234 nodes\n");
  auto authorizer = Create();
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const std::string view = "view-token-0123456";
  const std::string submit = "submit-token-01234";
  const std::string admin = "admin-token-012345";
  const std::string worker = "worker-token-01234";
  for (const std::string& token : {view, submit, admin, std::string(kLocalToken)}) {
    EXPECT_TRUE(Check(**authorizer, "ClusterService/GetJob", token).ok());
  }
  EXPECT_TRUE(Check(**authorizer, "ClusterService/SubmitJob", submit).ok());
  EXPECT_TRUE(Check(**authorizer, "ClusterService/SubmitJob", admin).ok());
  EXPECT_TRUE(Check(**authorizer, "ClusterService/CordonNode", admin).ok());
  EXPECT_TRUE(Check(**authorizer, "WorkerService/Session", worker).ok());
  EXPECT_TRUE(Check(**authorizer, "WorkerService/Session", kLocalToken).ok());

  const absl::Status low = Check(**authorizer, "ClusterService/SubmitJob", view);
  EXPECT_TRUE(absl::IsPermissionDenied(low));
  EXPECT_EQ(low.message(), "SubmitJob requires role submit, but token 'alice' has role view");
  EXPECT_TRUE(absl::IsPermissionDenied(Check(**authorizer, "ClusterService/CordonNode", submit)));
  EXPECT_TRUE(absl::IsPermissionDenied(Check(**authorizer, "WorkerService/Session", submit)));
  EXPECT_TRUE(absl::IsPermissionDenied(Check(**authorizer, "ClusterService/GetJob", worker)));
  EXPECT_TRUE(absl::IsPermissionDenied(Check(**authorizer, "ClusterService/Unheard", admin)));
}

TEST_F(AuthorizerTest, IdentifiesUsersByTheNamesOfTheirTokens) {
  WriteTokens(
      "submit submit-token-01234 alice\n"
      "submit submit-token-56789\n"
      "admin admin-token-012345 carol\n");
  auto authorizer = Create();
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const auto identify = [&](const std::string& token) {
    Authorizer::Caller caller;
    caller.token = "Bearer " + token;
    return (*authorizer)->Identify(caller);
  };
  EXPECT_EQ(identify("submit-token-01234")->name, "alice");
  EXPECT_FALSE(identify("submit-token-01234")->is_admin);
  // Not empty, which would open its jobs to everyone.
  EXPECT_EQ(identify("submit-token-56789")->name,
            absl::StrCat("token-", Sha256Hex("submit-token-56789").substr(0, 8)));
  EXPECT_FALSE(identify("submit-token-56789")->is_admin);
  EXPECT_TRUE(identify("admin-token-012345")->is_admin);
  EXPECT_EQ(identify(kLocalToken)->name, "local");
  EXPECT_TRUE(identify(kLocalToken)->is_admin);
  EXPECT_TRUE(absl::IsUnauthenticated(identify("unknown-token-0123").status()));
}

TEST_F(AuthorizerTest, DistinguishesMissingAndInvalidTokens) {
  WriteTokens("");
  auto authorizer = Create();
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const std::string method = "/muster.v1.ClusterService/GetJob";
  EXPECT_THAT(std::string((*authorizer)->Check(method, {}).message()), HasSubstr("no token"));
  EXPECT_THAT(std::string(Check(**authorizer, "ClusterService/GetJob", "wrong").message()),
              HasSubstr("not valid"));
  EXPECT_THAT(std::string(Check(**authorizer, "ClusterService/GetJob", "").message()),
              HasSubstr("not valid"));
  Authorizer::Caller caller;
  caller.token = "Basic YTpi";
  const absl::Status basic = (*authorizer)->Check(method, caller);
  EXPECT_TRUE(absl::IsUnauthenticated(basic));
  EXPECT_THAT(std::string(basic.message()), HasSubstr("'Bearer TOKEN'"));
}

TEST_F(AuthorizerTest, ProtocolMismatchNamesBothVersions) {
  AccessOptions options;
  options.require_token = false;
  auto authorizer = Authorizer::Create(options);
  ASSERT_TRUE(authorizer.ok());
  Authorizer::Caller caller;
  caller.protocol_version = absl::StrCat(kProtocolVersion);
  EXPECT_TRUE((*authorizer)->Check("/any", caller).ok());
  caller.protocol_version = absl::StrCat(kProtocolVersion - 1);
  EXPECT_TRUE((*authorizer)->Check("/any", caller).ok()) << "the version before";
  caller.protocol_version = absl::StrCat(kProtocolVersion);
  caller.newest_protocol_version = absl::StrCat(kProtocolVersion + 1);
  EXPECT_TRUE((*authorizer)->Check("/any", caller).ok()) << "the version after";
  caller.newest_protocol_version.clear();
  caller.protocol_version = "77";
  caller.software_version = "9.9.9";
  const absl::Status status = (*authorizer)->Check("/any", caller);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  for (const std::string& part :
       {std::string("9.9.9"), std::string("77"), std::string(kSoftwareVersion),
        absl::StrCat("protocols ", kOldestProtocolVersion, " to ", kProtocolVersion)}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST_F(AuthorizerTest, NamesInvalidLines) {
  const auto problem = [this](const std::string& text, mode_t mode = 0600) {
    WriteTokens(text, mode);
    return std::string(Create().status().message());
  };
  EXPECT_THAT(problem("view view-token-0123456\nroot root-token-012345\n"),
              HasSubstr(file_ + ":2: 'root' is not a role"));
  EXPECT_THAT(problem("view\n"), HasSubstr(":1: expected ROLE TOKEN [NAME]"));
  EXPECT_THAT(problem("view abc\n"), HasSubstr("shorter than 16"));
  EXPECT_THAT(problem("view view-token-0123456\n", 0644), HasSubstr("chmod 600"));
  std::filesystem::remove(file_);
  EXPECT_THAT(std::string(Create().status().message()), HasSubstr("No such file"));
}

TEST_F(AuthorizerTest, ReloadsChangedFile) {
  WriteTokens("view view-token-0123456\n");
  auto authorizer = Create();
  ASSERT_TRUE(authorizer.ok()) << authorizer.status();
  const auto may = [&](const std::string& token) {
    return Check(**authorizer, "ClusterService/GetJob", token).ok();
  };
  // Reads the tokens once it has seen the same file twice.
  const auto look = [&] {
    now_.steady = now_.steady + absl::Seconds(1);
    return (*authorizer)->Refresh();
  };
  EXPECT_TRUE(may("view-token-0123456"));
  // A file that is being written does not count.
  const uint64_t epoch = look();
  WriteTokens("");
  EXPECT_EQ(look(), epoch);
  WriteTokens("view other-token-012345\n");
  EXPECT_EQ(look(), epoch);
  EXPECT_TRUE(may("view-token-0123456"));
  EXPECT_NE(look(), epoch);
  EXPECT_TRUE(may("other-token-012345"));
  EXPECT_FALSE(may("view-token-0123456"));
  // A malformed file changes nothing.
  WriteTokens("view other-token-012345\nroot root-token-012345\n");
  look();
  look();
  EXPECT_TRUE(may("other-token-012345"));
  EXPECT_FALSE(may("root-token-012345"));
  WriteTokens("view third-token-012345\n");
  look();
  look();
  EXPECT_TRUE(may("third-token-012345"));
  EXPECT_FALSE(may("other-token-012345"));
}

TEST_F(AuthorizerTest, NodeCertificateActsAsWorkerUntilItIsRevoked) {
  WriteTokens("admin admin-token-0123456 olga\n");
  AccessOptions options;
  options.tokens_file = file_;
  options.require_certificate = true;
  auto authorizer = *Authorizer::Create(options);
  Authorizer::Caller caller;
  const auto check = [&](const std::string& method) {
    return authorizer->Check("/muster.v1." + method, caller);
  };
  EXPECT_TRUE(check("IdentityService/EnrollNode").ok());
  EXPECT_THAT(std::string(check("WorkerService/Session").message()),
              HasSubstr("requires a client certificate"));
  caller.token = "Bearer admin-token-0123456";
  EXPECT_TRUE(absl::IsPermissionDenied(check("ClusterService/GetJob")));
  caller.certificate.emplace().not_after = absl::InfiniteFuture();
  EXPECT_TRUE(check("ClusterService/GetJob").ok()) << "a user's certificate";

  caller.token.reset();
  EXPECT_TRUE(absl::IsUnauthenticated(check("WorkerService/Session")));
  caller.certificate->serial = "0a";
  caller.certificate->uris = {"muster://node/node-1?machine=m1"};
  EXPECT_TRUE(check("WorkerService/Session").ok());
  EXPECT_TRUE(check("IdentityService/RenewCertificate").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(check("ClusterService/GetJob")));
  EXPECT_EQ(authorizer->Identify(caller)->name, "node-1");
  authorizer->RevokeCertificate("0a");
  const absl::Status revoked = check("WorkerService/Session");
  EXPECT_TRUE(absl::IsPermissionDenied(revoked));
  EXPECT_THAT(std::string(revoked.message()), HasSubstr("0a of node node-1 was revoked"));
}

// Calls every method of every service of a complete coordinator; refused calls must not reach a
// handler.
class GuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CoordinatorOptions options;
    options.listen = options.http = "127.0.0.1:0";
    options.access.local_token = kLocalToken;
    options.access.tokens_file = ::testing::TempDir() + "/roles." + std::to_string(getpid());
    std::ofstream(options.access.tokens_file)
        << "view " << kViewToken << "\nsubmit " << kSubmitToken << "\nworker " << kWorkerToken;
    ASSERT_EQ(chmod(options.access.tokens_file.c_str(), 0600), 0);
    auto coordinator = Coordinator::Start(options, store_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateChannel(
        coordinator_->grpc_address().ToString(), grpc::InsecureChannelCredentials()));
  }

  // Calls the method with an empty message if it takes one.
  grpc::Status Call(const std::string& method, const std::string& token,
                    const std::string& protocol = "") {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    if (!protocol.empty()) context.AddMetadata("muster-protocol-version", protocol);
    grpc::CompletionQueue queue;
    auto call = stub_->PrepareCall(&context, method, &queue);
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    call->StartCall(nullptr);
    wait();
    grpc::Slice nothing;
    call->WriteLast(grpc::ByteBuffer(&nothing, 1), grpc::WriteOptions(), nullptr);
    wait();
    grpc::ByteBuffer answer;
    do {
      call->Read(&answer, nullptr);
    } while (wait());
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    return status;
  }

  store::MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

// The rows of a table in Markdown with the given first head, as texts of their cells.
std::vector<std::vector<std::string>> ReadTable(const std::string& path, const std::string& head) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  while (std::getline(file, line) && !absl::StartsWith(line, "| " + head)) {
  }
  for (std::getline(file, line); std::getline(file, line) && absl::StartsWith(line, "|");) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    rows.emplace_back(cells.begin() + 1, cells.end() - 1);
  }
  return rows;
}

TEST_F(GuardTest, CallersMayCallWhatTheReferenceSays) {
  const std::string tokens[] = {"", kViewToken, kSubmitToken, kWorkerToken, kLocalToken};
  const auto rows = ReadTable("docs/reference/methods.md", "method");
  EXPECT_EQ(rows.size(), AllMethods().size());
  for (const std::vector<std::string>& row : rows) {
    ASSERT_EQ(row.size(), 1 + std::size(tokens) + 1);
    const std::string method(absl::StripSuffix(absl::StripPrefix(row[0], "`"), "`"));
    for (size_t i = 0; i < std::size(tokens); ++i) {
      const grpc::StatusCode code = Call(method, tokens[i]).error_code();
      const bool refused =
          code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::PERMISSION_DENIED;
      EXPECT_EQ(refused, row[i + 1] != "yes") << method << " as '" << tokens[i] << "': " << code;
      EXPECT_TRUE(!refused || (code == grpc::StatusCode::UNAUTHENTICATED) == tokens[i].empty())
          << method << " as '" << tokens[i] << "': " << code;
    }
    const bool open = row[1] == "yes";
    EXPECT_EQ(Call(method, "wrong").error_code() == grpc::StatusCode::UNAUTHENTICATED, !open)
        << method;
    EXPECT_EQ(Call(method, kLocalToken, "77").error_code(), grpc::StatusCode::FAILED_PRECONDITION)
        << method;
  }
}

TEST_F(GuardTest, HealthIsOpenAndUnknownMethodsAreUnimplemented) {
  EXPECT_TRUE(Call("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(Call("/muster.v1.ClusterService/Unheard", kLocalToken).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GuardTest, VersionMismatchNamesVersionToInstall) {
  security::ClientSecurity security;
  security.token = kLocalToken;
  const auto get_version = [&] {
    const auto stub = v1::ClusterService::NewStub(
        OpenChannel(coordinator_->grpc_address().ToString(), {}, security));
    v1::GetVersionResponse response;
    return service::Call(*stub, &v1::ClusterService::Stub::GetVersion, v1::GetVersionRequest(),
                         &response);
  };
  EXPECT_TRUE(get_version().ok());
  security.protocol_version = kProtocolVersion + 1;
  security.software_version = "9.9.9";
  const grpc::Status status = get_version();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(),
            absl::StrCat("client version 9.9.9 uses protocol ", kProtocolVersion + 1,
                         ", but coordinator version ", kSoftwareVersion, " uses protocols ",
                         kOldestProtocolVersion, " to ", kProtocolVersion, "; install version ",
                         kSoftwareVersion, " on both sides"));
}

TEST_F(GuardTest, DefaultCoordinatorRefusesAllCalls) {
  CoordinatorOptions options;
  EXPECT_TRUE(options.access.require_token);
}

}  // namespace
}  // namespace muster::service
