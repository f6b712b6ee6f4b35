#include "worker/agent/exec/exec_transfer.h"

#include <utility>

namespace muster::agent {

ExecTransfer::ExecTransfer(TransferHost host, const v1::OpenExec& open, std::string shim_binary,
                           std::string rank_directory)
    : StreamTransfer(std::move(host)),
      open_(open),
      shim_binary_(std::move(shim_binary)),
      rank_directory_(std::move(rank_directory)),
      self_(std::make_shared<ExecTransfer*>(this)) {}

void ExecTransfer::Start() {
  auto process = ExecProcess::Start(host_.loop, shim_binary_, rank_directory_, open_.start(),
                                    [self = std::weak_ptr<ExecTransfer*>(self_)](int exit_code) {
                                      if (const auto raw = self.lock()) (*raw)->OnExit(exit_code);
                                    });
  if (!process.ok()) return FailToStart(process.status());
  process_ = *std::move(process);
  host_.stub->async()->ServeExec(&context_, this);
  Open();
  ReadNext();
}

void ExecTransfer::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  if (open_.job_id() != job_id || open_.generation() != generation) return;
  if (open_.start().rank() == rank && process_ != nullptr) process_->Kill();
}

void ExecTransfer::OnReadDone(bool ok) {
  host_.loop.Post([this, ok] { OnRead(ok); });
}

void ExecTransfer::OnExit(int exit_code) {
  exit_code_ = exit_code;
  Advance();
}

void ExecTransfer::ReadNext() {
  if (!finished_) StartRead(&incoming_);
}

void ExecTransfer::OnRead(bool ok) {
  if (finished_) return;
  if (ok) return Receive();
  // The client has disconnected.
  broken_ = true;
  Advance();
}

void ExecTransfer::Receive() {
  switch (incoming_.kind_case()) {
    case v1::ExecInput::kStdinData:
      return process_->Write(std::move(*incoming_.mutable_stdin_data()), [this] { ReadNext(); });
    case v1::ExecInput::kStdinEnd:
      process_->CloseInput();
      break;
    case v1::ExecInput::kSize:
      process_->Resize(incoming_.size().rows(), incoming_.size().columns());
      break;
    case v1::ExecInput::kSignal:
      process_->Signal(incoming_.signal());
      break;
    case v1::ExecInput::kStart:
    case v1::ExecInput::KIND_NOT_SET:
      break;
  }
  ReadNext();
}

void ExecTransfer::Advance() {
  if (finished_ || writing_) return;
  if (broken_ || sent_exit_code_) {
    process_.reset();
    return Finish();
  }
  if (!named_) return Send({});
  process_->UnwatchOutput();
  if (std::optional<v1::ExecOutput> output = NextOutput()) return Send(*std::move(output));
  // After the exit, no process is left that could write more.
  if (exit_code_.has_value()) {
    v1::ExecOutput end;
    end.set_exit_code(*exit_code_);
    sent_exit_code_ = true;
    return Send(std::move(end));
  }
  process_->WatchOutput([this] { Advance(); });
}

std::optional<v1::ExecOutput> ExecTransfer::NextOutput() {
  std::string data;
  v1::ExecOutput output;
  if (!out_ended_ && process_->ReadOut(data)) {
    out_ended_ = data.empty();
    if (!out_ended_) {
      output.set_stdout_data(std::move(data));
      return output;
    }
  }
  data.clear();
  if (!err_ended_ && process_->ReadErr(data)) {
    err_ended_ = data.empty();
    if (!err_ended_) {
      output.set_stderr_data(std::move(data));
      return output;
    }
  }
  return std::nullopt;
}

void ExecTransfer::Send(v1::ExecOutput output) {
  v1::ServeExecRequest& message = NextMessage();
  if (output.kind_case() != v1::ExecOutput::KIND_NOT_SET) {
    *message.mutable_output() = std::move(output);
  }
  Write();
}

}  // namespace muster::agent
