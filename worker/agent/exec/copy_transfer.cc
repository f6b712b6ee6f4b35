#include "worker/agent/exec/copy_transfer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/agent/exec/copy_source.h"
#include "worker/agent/exec/exec_process.h"
#include "worker/shim/credentials.h"

namespace muster::agent {
namespace {

constexpr size_t kErrorTextBytes = 2048;
// GNU tar: some files have changed while they were read.
constexpr int kTarChanged = 1;

}  // namespace

CopyTransfer::CopyTransfer(TransferHost host, const v1::OpenFiles& open,
                           const DataDirectory& directory, std::string node_name,
                           const JobUsers& users, std::string shim_binary)
    : StreamTransfer(std::move(host)),
      open_(open),
      directory_(directory),
      node_name_(std::move(node_name)),
      users_(users),
      shim_binary_(std::move(shim_binary)),
      self_(std::make_shared<CopyTransfer*>(this)) {}

CopyTransfer::~CopyTransfer() {
  Close(out_);
  Close(err_);
  if (tar_ > 0) kill(tar_, SIGKILL);
}

void CopyTransfer::Start() {
  const absl::Status started = StartTar();
  if (!started.ok()) return FailToStart(started);
  host_.stub->async()->SendFiles(&context_, &response_, this);
  Open();
}

absl::Status CopyTransfer::StartTar() {
  ASSIGN_OR_RETURN(const CopySource source,
                   ResolveCopySource(open_.request(), directory_, node_name_, users_));
  path_ = absl::StrCat(source.parent == "/" ? "" : source.parent, "/", source.name);
  const OwnedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  OwnedFd out;
  OwnedFd err;
  if (!OpenPipe(out_, out) || !OpenPipe(err_, err)) return ErrnoStatus(errno, "pipe");
  const char* const path = std::getenv("PATH");
  ChildProgram tar;
  if (source.user.has_value()) {
    tar.command = {shim_binary_, shim::kRunAsWord,
                   shim::EncodeCredentials(source.user->credentials)};
  }
  for (const std::string& word :
       std::vector<std::string>{"tar", "-C", source.parent, "-cf", "-", "--", source.name}) {
    tar.command.push_back(word);
  }
  tar.environment = {absl::StrCat("PATH=", path == nullptr ? "/usr/bin:/bin" : path), "LC_ALL=C"};
  tar.descriptors = {null.get(), out.get(), err.get()};
  ASSIGN_OR_RETURN(tar_, StartChild(tar));
  fcntl(out_.get(), F_SETFL, O_NONBLOCK);
  fcntl(err_.get(), F_SETFL, O_NONBLOCK);
  host_.loop.Watch(err_.get(), [this] { OnErrorText(); });
  ReapOnExit(host_.loop, tar_, [self = std::weak_ptr<CopyTransfer*>(self_)](int exit_code) {
    if (const auto raw = self.lock()) (*raw)->OnExit(exit_code);
  });
  return absl::OkStatus();
}

void CopyTransfer::OnExit(int exit_code) {
  tar_ = -1;
  exit_code_ = exit_code;
  OnErrorText();
  Advance();
}

void CopyTransfer::OnErrorText() {
  char buffer[1024];
  while (err_.get() >= 0) {
    const ssize_t n = read(err_.get(), buffer, sizeof(buffer));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return Close(err_);
    if (error_text_.size() < kErrorTextBytes) error_text_.append(buffer, static_cast<size_t>(n));
  }
}

void CopyTransfer::Advance() {
  if (finished_ || writing_) return;
  if (broken_) return Finish();
  if (!named_) return Send("");
  if (out_.get() >= 0) {
    host_.loop.Unwatch(out_.get());
    std::string data(limits::kLogChunkBytes, '\0');
    const ssize_t n = read(out_.get(), data.data(), data.size());
    if (n > 0) {
      data.resize(static_cast<size_t>(n));
      return Send(std::move(data));
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      return host_.loop.Watch(out_.get(), [this] { Advance(); });
    }
    Close(out_);
  }
  if (!exit_code_.has_value()) return;
  if (*exit_code_ <= kTarChanged) return Finish();
  // The coordinator ends the stream when it has received the failure.
  finished_ = true;
  host_.fail(absl::InternalError(absl::StrCat("node ", node_name_, ": cannot read ", path_, ": ",
                                              absl::StripAsciiWhitespace(error_text_))));
  RemoveHold();
}

void CopyTransfer::Send(std::string data) {
  v1::SendFilesRequest& message = NextMessage();
  if (!data.empty()) message.mutable_chunk()->set_data(std::move(data));
  Write();
}

void CopyTransfer::Close(OwnedFd& fd) {
  if (fd.get() < 0) return;
  host_.loop.Unwatch(fd.get());
  fd.Close();
}

}  // namespace muster::agent
