#include "kernels/cpu/onednn.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

// Of the OpenMP runtime that oneDNN is linked with; the compiler's own omp.h may belong to another.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
}

namespace muster::kernels::cpu {

const dnnl::engine& CpuEngine() {
  static const dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  if (threads != before_) omp_set_num_threads(threads);
}

ThreadLimit::~ThreadLimit() { omp_set_num_threads(before_); }

absl::Status OneDnnStatus(absl::string_view what, const dnnl::error& error) {
  const std::string message = absl::StrCat(what, ": oneDNN: ", error.what());
  switch (error.status) {
    case dnnl_out_of_memory:
      return absl::ResourceExhaustedError(message);
    case dnnl_invalid_arguments:
    case dnnl_unimplemented:
      return absl::InvalidArgumentError(message);
    default:
      return absl::InternalError(message);
  }
}

std::string DescribeLayout(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  if (data.format_kind != dnnl_blocked || data.extra.flags != dnnl_memory_extra_flag_none) {
    return "";
  }
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  std::string text = "strides";
  for (int i = 0; i < data.ndims; ++i) absl::StrAppend(&text, " ", blocking.strides[i]);
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    absl::StrAppend(&text, i == 0 ? " blocks " : "x", blocking.inner_blks[i], "@",
                    blocking.inner_idxs[i]);
  }
  return text;
}

Primitive::Primitive(const dnnl::primitive_desc_base& desc, std::vector<Argument> arguments)
    : stream_(CpuEngine()) {
  dnnl_primitive_t primitive = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_create(&primitive, desc.get()),
                          "could not create a primitive");
  primitive_.reset(primitive);
  implementation_ = desc.impl_info_str();
  const dnnl::memory::desc scratchpad =
      desc.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
  scratchpad_bytes_ = scratchpad.get_size();
  arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  for (const Argument& argument : arguments) {
    memories_.emplace_back(argument.desc, CpuEngine(), static_cast<void*>(DNNL_MEMORY_NONE));
    arguments_.push_back({argument.index, memories_.back().get()});
  }
  addresses_.resize(memories_.size(), nullptr);
}

void Primitive::Execute(std::initializer_list<const void*> addresses, void* scratchpad) {
  const auto bind = [this](size_t i, const void* address) {
    if (addresses_[i] == address) return;
    const dnnl_status_t status =
        dnnl_memory_set_data_handle(memories_[i].get(), const_cast<void*>(address));
    LOG_IF(FATAL, status != dnnl_success) << implementation_ << ": oneDNN status " << status;
    addresses_[i] = address;
  };
  size_t i = 0;
  for (const void* address : addresses) bind(i++, address);
  if (scratchpad_bytes_ > 0) bind(i, scratchpad);
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  LOG_IF(FATAL, status != dnnl_success) << implementation_ << ": oneDNN status " << status;
}

}  // namespace muster::kernels::cpu
